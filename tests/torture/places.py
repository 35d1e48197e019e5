"""Where a program's own code calls functions that can fail: found in its machine code, named by its debug info."""
import fnmatch
import pathlib
import re
import subprocess

FUNCTIONS = set(re.findall(r"^\tX\((\w+),", pathlib.Path(__file__).with_name("fail_call.c").read_text("utf-8"), re.M))


# Places that no trial comes by, and why; by the programs for which that holds.
FLOOD = "a flood is 4096 connections in a second, more than a busy machine accepts"
NO_GPU = "without a GPU no module is loaded, no operand is copied, and no kernel's time is learned"
RECEIVERS = "only kopsd looks for descriptors before it takes a message"
NOT_MET = {
    ("kopsd", "kopsd-gpu"): {
        "listen in count_connection at *": FLOOD,
        "listen in end_flood at *": FLOOD,
        "recv in message_recv_wait at *": "only libkops blocks until a message comes",
    },
    ("kopsd",): {
        "* in open_library at *": NO_GPU,
        "* at device/learned*": NO_GPU,
        "calloc in stage_new at *": NO_GPU,
        "malloc in fit_all at *": NO_GPU,
        "newlocale in enter at proto/decimal.c:*": NO_GPU,
    },
    ("libkops",): {
        "munmap in map_private at *": "only Linux before 4.17 maps elsewhere than it is told",
        "recvmsg in peek at *": RECEIVERS,
        "recv in message_recv_bytes at *": RECEIVERS,
        "recv in message_waits at *": RECEIVERS,
    },
}


def why_not_met(place, programs):
    """None: it can be."""
    return next((why for of, places in NOT_MET.items() if programs <= set(of)
                 for pattern, why in places.items() if fnmatch.fnmatchcase(place, pattern)), None)


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def calls_of(file):
    """(function, where it returns to) of each call. Those that the compiler made jumps return elsewhere: not here."""
    function = None
    for line in run("objdump", "-d", "--no-show-raw-insn", file).splitlines():
        instruction = re.match(r"\s+([0-9a-f]+):\s+(\w+)(?:.*<(\w+?)(?:64)?@plt>)?", line)
        if not instruction:
            continue
        if function:
            yield function, int(instruction[1], 16)
        function = instruction[3] if instruction[2] == "call" and instruction[3] in FUNCTIONS else None


def lines_of(file, addresses):
    """The caller and FOLDER/FILE:LINE for each. What is inlined from a header of a library is where it was inlined."""
    frames = run("addr2line", "-apfie", file, *map(hex, addresses))
    for found in re.split(r"^0x[0-9a-f]+: ", frames, flags=re.M)[1:]:
        places = re.findall(r"^(?: \(inlined by\) )?(\w+)\S* at (\S+)", found, re.M)
        caller, line = next((place for place in places if not place[1].startswith("/usr/")), ("?", "?"))
        yield caller, "/".join(line.split("/")[-2:])


def places_of(files):
    """{(name of the file, where the call returns to): "FUNCTION in CALLER at LINE"}; files: {name: path}"""
    places = {}
    for name, path in files.items():
        calls = list(calls_of(path))
        for (function, to), (caller, line) in zip(calls, lines_of(path, [to - 1 for _, to in calls])):
            places[name, to] = f"{function} in {caller} at {line}"
    return places
