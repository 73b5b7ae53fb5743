"""Makes a repository with a library for each donor:

    load("@allograft_bazel//:repository.bzl", "allograft_repository")

    allograft_repository(name = "allograft")

Then `malloc = "@allograft//:malloc"` gives a cc_binary the default donor, and `malloc = "@allograft//:mimalloc"` that
one. docs/toolchains/bazel.md of allograft explains the rest.
"""

# The names that `allograft donors` prints. `malloc` is the default one.
DONORS = [
    "hardened",
    "hardened-light",
    "jemalloc",
    "mimalloc",
    "mimalloc-secure",
    "mimalloc3",
    "rpmalloc",
    "scudo",
    "snmalloc",
    "snmalloc-checks",
]

_BUILD = """\
load(":malloc.bzl", "allograft_malloc")

package(default_visibility = ["//visibility:public"])

exports_files(["allograft"])

allograft_malloc(name = "malloc")
"""

_CPU = """
config_setting(
    name = "cpu.{name}",
    constraint_values = ["@platforms//cpu:{name}"],
)
"""

_DONOR = """
allograft_malloc(
    name = "{name}",
    donor = "{name}",
)
"""

def _repository(ctx):
    program = ctx.attr.program or ctx.which("allograft")
    if not program:
        fail("there is no program `allograft`\n" +
             "help: install it, or name it: allograft_repository(program = \"/path/of/allograft\")")
    ctx.symlink(program, "allograft")
    ctx.symlink(Label("//:malloc.bzl"), "malloc.bzl")
    cpus = [_CPU.format(name = name) for name in ["aarch64", "arm", "x86_32"]]
    donors = [_DONOR.format(name = name) for name in DONORS]
    ctx.file("BUILD.bazel", _BUILD + "".join(cpus + donors))

allograft_repository = repository_rule(
    _repository,
    attrs = {
        "program": attr.string(doc = "The path of the program allograft; without it, the one on the command path."),
    },
    environ = ["PATH"],
    local = True,
    doc = "A repository with the program allograft, a library for each donor, and malloc.bzl.",
)
