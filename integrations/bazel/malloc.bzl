"""Libraries for the attribute `malloc` of cc_binary and cc_test, and a test of what a program carries."""

load("@rules_cc//cc:defs.bzl", "cc_library")

# The sanitizers that find errors by a malloc of their own, and the features that turn them on.
_SANITIZERS = {
    "address": "asan",
    "leak": "lsan",
    "memory": "msan",
    "thread": "tsan",
}

# The targets of `allograft emit`, by the platform that is built for.
_TARGET = select({
    str(Label("//:cpu.aarch64")): "aarch64-linux-musl",
    str(Label("//:cpu.arm")): "arm-linux-musleabihf",
    str(Label("//:cpu.x86_32")): "i686-linux-musl",
    "//conditions:default": "x86_64-linux-musl",
})

def _sanitizer(ctx):
    """Returns the flag that turns such a sanitizer on, or None."""
    cpp = ctx.fragments.cpp
    for sanitizer, feature in _SANITIZERS.items():
        for flag in cpp.copts + cpp.cxxopts + cpp.conlyopts + cpp.linkopts:
            if flag.startswith("-fsanitize=") and sanitizer in flag:
                return flag
        if feature in ctx.features:
            return "--features=" + feature
    return None

def _object(ctx):
    out = ctx.outputs.out
    sanitizer = _sanitizer(ctx)
    if sanitizer:
        # An error when the donor is made: whoever replaces it by --custom_malloc does not need it.
        ctx.actions.run_shell(
            outputs = [out],
            command = "echo \"$1\" >&2; echo \"$2\" >&2; exit 1",
            arguments = [
                ("{}: the flags have {}, and that sanitizer finds errors by a malloc of its own, " +
                 "which a donor would replace").format(ctx.label, sanitizer),
                "help: build with sanitizers with --custom_malloc=@bazel_tools//tools/cpp:malloc",
            ],
            mnemonic = "Allograft",
        )
        return
    arguments = ctx.actions.args()
    arguments.add("--quiet")
    arguments.add("emit")
    arguments.add_all(["--target", ctx.attr.target, "--as", "object", "-o", out])
    for option in ["donor", "profile", "strings"]:
        if getattr(ctx.attr, option):
            arguments.add_all(["--" + option, getattr(ctx.attr, option)])
    arguments.add_all(ctx.attr.set, before_each = "--set")
    ctx.actions.run(
        outputs = [out],
        inputs = [ctx.file.program],
        executable = ctx.file.program,
        arguments = [arguments],
        mnemonic = "Allograft",
        progress_message = "Emitting {}".format(out.short_path),
    )

_allograft_object = rule(
    _object,
    attrs = {
        "donor": attr.string(),
        "out": attr.output(mandatory = True),
        "profile": attr.string(),
        "program": attr.label(allow_single_file = True, mandatory = True),
        "set": attr.string_list(),
        "strings": attr.string(),
        "target": attr.string(mandatory = True),
    },
    fragments = ["cpp"],
)

def allograft_malloc(name, donor = "", profile = "", strings = "", set = [], target = _TARGET, **given):
    """A library for `malloc = ` of static programs of musl.

    Args:
      name: the library's.
      donor: the allocator, the default one if empty.
      profile: one of the donor's sets of options.
      strings: "on" or "off": whether programs get fast string functions too.
      set: options of the donor, each as "KEY=VALUE".
      target: the target of `allograft emit`; without it, that of the platform.
      **given: attributes of every rule, such as visibility.
    """
    _allograft_object(
        name = name + ".emitted",
        donor = donor,
        out = name + ".o",
        profile = profile,
        program = Label("//:allograft"),
        set = set,
        strings = strings,
        target = target,
        tags = ["manual"],
    )
    cc_library(
        name = name,
        srcs = [name + ".o"],
        # Linked whole, and so before libc's, even if only libc itself calls malloc.
        alwayslink = True,
        linkstatic = True,
        **given
    )

def _test(ctx):
    script = ctx.actions.declare_file(ctx.label.name + ".sh")
    words = [ctx.file._allograft.short_path, "inspect", "--expect", ctx.attr.expect, ctx.executable.program.short_path]
    ctx.actions.write(script, "#!/bin/sh\nexec '{}'\n".format("' '".join(words)), is_executable = True)
    return [DefaultInfo(
        executable = script,
        runfiles = ctx.runfiles(files = [ctx.file._allograft, ctx.executable.program]),
    )]

allograft_test = rule(
    _test,
    attrs = {
        "expect": attr.string(mandatory = True, doc = "The donor, or what else `allograft inspect --expect` takes."),
        "program": attr.label(executable = True, cfg = "target", mandatory = True),
        "_allograft": attr.label(allow_single_file = True, default = Label("//:allograft")),
    },
    test = True,
    doc = "Fails unless the program carries that malloc, for example if something on its link line brings another.",
)
