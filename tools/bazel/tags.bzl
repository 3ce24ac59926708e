"""What the tags of a test mean. Also plain Python, which tests/tools/test_tags.py runs."""

# End-to-end tests by what they are about: CI has one job for each, and .bazelrc one --config.
SUITES = ["agent", "ckpt", "image", "megatron", "precision", "sglang-config"]

# Bazel's own, and what a test may say beside its machine and its suites.
_OTHERS = ["exclusive", "external", "manual", "slow"]

# A pass on GPUs depends on the machine: no cache keeps it. Its packages, models and network are the machine's.
_ON_GPUS = ["external", "gpu", "no-cache", "no-sandbox", "requires-network"]

def gpus_of(tags):
    """How many GPUs the tags ask for: N of "gpu:N", else 0."""
    counts = [tag[len("gpu:"):] for tag in tags if tag.startswith("gpu:")]
    return int(counts[0]) if counts else 0

def test_tags(name, tags):
    """The tags that Bazel gets: those written, checked, and those that follow from them."""
    counts = [tag for tag in tags if tag.startswith("gpu:")]
    for tag in counts:
        if not tag[len("gpu:"):].isdigit() or int(tag[len("gpu:"):]) == 0:
            fail("%s: tag %r: write the number of GPUs, as in gpu:8" % (name, tag))
    if len(counts) + len([tag for tag in tags if tag == "cpu"]) != 1:
        fail("%s: tags %s: a test runs on a CPU or on GPUs: give one of cpu and gpu:N" % (name, tags))
    for tag in tags:
        if tag != "cpu" and tag not in counts + SUITES + _OTHERS:
            fail("%s: tag %r: not one of cpu, gpu:N, %s" % (name, tag, ", ".join(SUITES + _OTHERS)))
    return tags + [tag for tag in _ON_GPUS if counts and tag not in tags]
