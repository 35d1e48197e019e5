"""Where a program's own code calls functions that can fail: found in its machine code, named by its debug info."""
import pathlib
import re
import subprocess

FUNCTIONS = set(re.findall(r"^\tX\((\w+),", pathlib.Path(__file__).with_name("fail_call.c").read_text("utf-8"), re.M))


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
    """FOLDER/FILE:LINE of the source for each. What is inlined from a header of a library is where it was inlined."""
    frames = run("addr2line", "-aie", file, *map(hex, addresses))
    for found in re.split(r"^0x.*\n", frames, flags=re.M)[1:]:
        lines = [line.partition(" ")[0] for line in found.splitlines()]
        yield "/".join(next((line for line in lines if not line.startswith("/usr/")), "?").split("/")[-2:])


def places_of(files):
    """{(name of the file, where the call returns to): "FUNCTION at LINE"}; files: {name: path}"""
    places = {}
    for name, path in files.items():
        calls = list(calls_of(path))
        for (function, to), line in zip(calls, lines_of(path, [to - 1 for _, to in calls])):
            places[name, to] = f"{function} at {line}"
    return places
