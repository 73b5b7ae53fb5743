"""Emits the donor for the programs of a build, and says how they are linked with it. Meson runs this by its own
python.

emitter.py emit ALLOGRAFT FOLDER [CHOICE...] -- COMPILER... [FLAG...]

    Links an empty program in FOLDER by COMPILER with FLAGs, and has ALLOGRAFT look at it. Then ALLOGRAFT writes the
    donor into FOLDER, as CHOICE says, in the arguments of `allograft emit`. Prints four lines: `object` or `shared`;
    the target; the name that `allograft inspect --expect` will find, or `none` if it cannot; a sentence for people.

emitter.py place FOLDER OUTPUT

    Moves what `emit` wrote to the file OUTPUT. An equal file keeps its time, so that nothing is linked again.

On an error, a message is on stderr, and the exit code is 1.
"""

import filecmp
import json
import os
import subprocess
import sys

# What `emit` leaves in the folder for `place`.
NEW = "allograft.new"


def output(command):
    """Returns what a command prints."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    except OSError as error:
        sys.exit("cannot run {}: {}".format(command[0], error))
    if done.returncode != 0:
        sys.exit("{} failed ({}):\n{}".format(" ".join(command), done.returncode, done.stderr.strip()))
    return done.stdout


def linked(allograft, folder, compiler):
    """Returns what `allograft inspect` says of an empty program."""
    source, program = os.path.join(folder, "empty.c"), os.path.join(folder, "empty")
    with open(source, "w") as file:
        # This is C++, too.
        file.write("int main(void) { return 0; }\n")
    output(compiler + ["-o", program, source])
    return json.loads(output([allograft, "inspect", "--json", program]))["files"][0]


def emit(allograft, folder, *rest):
    """See the top of this file."""
    end = rest.index("--")
    choice, compiler = list(rest[:end]), list(rest[end + 1 :])
    found = linked(allograft, folder, compiler)
    dynamic = found["link"] == "dynamic"
    if not dynamic and found["libc"] != "musl":
        sys.exit(
            "a program of {} that is linked {}; donors are for static programs of musl, and for dynamic ones\n"
            "help: link without -static, or with a compiler for musl".format(found["libc"], found["link"])
        )
    if dynamic and "--strings" in choice:
        # A shared object has no string functions, since glibc's are fast.
        at = choice.index("--strings")
        del choice[at : at + 2]
    form = "shared" if dynamic else "object"
    libc = found["libc"].replace("glibc", "gnu") + ("eabihf" if found["arch"] == "arm" else "")
    target = "{}-linux-{}".format(found["arch"], libc)
    command = [allograft, "emit", "--json", "--target", target, "--as", form, "-o", os.path.join(folder, NEW)]
    donor = json.loads(output(command + choice))["donor"]
    donor = donor["donor"] if donor else "none"
    # `inspect` follows a dynamic program to its libc, which has to be on this system.
    is_followed = not dynamic or found["malloc"]["file"] is not None
    print(form, target, donor if is_followed else "none", sep="\n")
    print("executables take {} for {} ({})".format(donor if donor != "none" else "string functions", target, form))


def place(folder, file):
    """See the top of this file."""
    new = os.path.join(folder, NEW)
    if os.path.exists(file) and filecmp.cmp(file, new, shallow=False):
        os.remove(new)
    else:
        os.replace(new, file)


if __name__ == "__main__":
    {"emit": emit, "place": place}[sys.argv[1]](*sys.argv[2:])
