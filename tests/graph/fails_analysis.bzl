"""A test that passes when a target cannot be analysed, for the reason expected."""

def _impl(ctx):
    target = ctx.attr.target[0]  # a transition makes a list of it
    if AnalysisFailureInfo in target:
        found = " ".join([cause.message for cause in target[AnalysisFailureInfo].causes.to_list()])
    else:
        found = "no error at all"
    return [AnalysisTestResultInfo(
        success = ctx.attr.message in found,
        message = "expected: %s\nfound: %s" % (ctx.attr.message, found),
    )]

fails_analysis_test = rule(
    implementation = _impl,
    attrs = {
        "message": attr.string(mandatory = True, doc = "part of the expected error"),
        "target": attr.label(
            cfg = analysis_test_transition(
                settings = {"//command_line_option:allow_analysis_failures": "True"},
            ),
            mandatory = True,
        ),
    },
    analysis_test = True,
)
