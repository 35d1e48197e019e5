"""The version is kops.h's. A wheel that carries libkops (see scripts/wheel) is for one platform, but for any Python."""
import pathlib
import re

from setuptools import Distribution, setup
try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    from wheel.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent
CARRIES_LIBRARY = (HERE / "kops" / "libkops.so.0").exists()


def version():
    header = (HERE.parent / "kops.h").read_text(encoding="utf-8")
    return ".".join(re.findall(r"^#define KOPS_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", header, re.MULTILINE))


class OnePlatform(Distribution):
    def has_ext_modules(self):
        return CARRIES_LIBRARY


class AnyPython(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(version=version(), distclass=OnePlatform, cmdclass={"bdist_wheel": AnyPython})
