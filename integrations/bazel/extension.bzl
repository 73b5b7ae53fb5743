"""The same repository for projects with a MODULE.bazel."""

load(":repository.bzl", "allograft_repository")

def _allograft(_ctx):
    allograft_repository(name = "allograft")

allograft = module_extension(_allograft)
