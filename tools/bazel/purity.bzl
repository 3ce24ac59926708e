"""Purity: what a room may reach, checked by the build graph itself.

A room declares one of three levels and everything it reaches must be at that level or below:
  pure     neither torch nor any running part
  torch    torch, but no Megatron, SGLang, Ray or transformers
  running  anything
"""

LEVELS = ["pure", "torch", "running"]

# The packages that set a level; whatever else a wheel pulls in counts through its own dependencies.
_PACKAGES = {
    "pypi_megatron_core": "running",
    "pypi_ray": "running",
    "pypi_sglang": "running",
    "pypi_sglang_router": "running",
    "pypi_torch": "torch",
    "pypi_transformers": "running",
}

_TAG = "purity="

_ReachInfo = provider(
    doc = "What a target reaches above the pure level.",
    fields = {"paths": "dict: label -> (level, the way to it as text)"},
)

def purity_tag(purity):
    """The tag by which a library carries its level."""
    if purity not in LEVELS:
        fail("purity is one of %s, not %r" % (LEVELS, purity))
    return _TAG + purity

def _level(target, ctx):
    repository = target.label.workspace_name
    for package, level in _PACKAGES.items():
        if repository.endswith(package):  # under bzlmod the name has a prefix
            return level
    for tag in ctx.rule.attr.tags:
        if tag.startswith(_TAG):
            return tag[len(_TAG):]
    return "pure"

def _reach_impl(target, ctx):
    me = str(target.label)
    level = _level(target, ctx)
    paths = {} if level == "pure" else {me: (level, me)}
    for attribute in ["deps", "data"]:
        for dep in getattr(ctx.rule.attr, attribute, []):
            for label, (its_level, path) in (dep[_ReachInfo].paths if _ReachInfo in dep else {}).items():
                paths.setdefault(label, (its_level, me + " -> " + path))
    return [_ReachInfo(paths = paths)]

_reach = aspect(
    implementation = _reach_impl,
    attr_aspects = ["deps", "data"],
)

def _gate_impl(ctx):
    allowed = LEVELS.index(ctx.attr.purity)
    broken = [
        "%s (%s)" % (path, level)
        for dep in ctx.attr.deps
        for level, path in dep[_ReachInfo].paths.values()
        if LEVELS.index(level) > allowed
    ]
    if broken:
        fail("\n  ".join(["%s is declared %r but reaches" % (ctx.attr.room, ctx.attr.purity)] + broken))
    return [DefaultInfo()]

# Every slime_library has one among its data: a room that breaks its level cannot be built, nor anything that uses it.
purity_gate = rule(
    implementation = _gate_impl,
    attrs = {
        "deps": attr.label_list(aspects = [_reach]),
        "purity": attr.string(values = LEVELS, mandatory = True),
        "room": attr.string(mandatory = True),
    },
)
