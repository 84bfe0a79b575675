"""Copies of the package: in a zip, and without the file that a link leads to."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipapp

PACKAGE = pathlib.Path(__file__).with_name("redis_lease_semaphore")
PROGRAM = "from redis_lease_semaphore import SemaphoreClient, scripts\nprint(scripts.__file__, len(scripts.SCRIPTS))\n"


class Package(unittest.TestCase):
    def copy(self, **how):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        source = pathlib.Path(folder.name) / "source"
        shutil.copytree(PACKAGE, source / PACKAGE.name, **how)
        (source / "__main__.py").write_text(PROGRAM)
        return source

    def run_program(self, path):
        return subprocess.run([sys.executable, path], capture_output=True, text=True)

    def test_the_package_can_be_imported_from_a_zip(self):
        source = self.copy()
        archive = source.with_name("program.pyz")
        zipapp.create_archive(source, archive)
        ended = self.run_program(archive)
        self.assertEqual(ended.stdout, f"{archive}/redis_lease_semaphore/scripts.py 7\n", ended.stderr)

    def test_a_copy_without_the_scripts_is_reported(self):
        ended = self.run_program(self.copy(symlinks=True))
        self.assertRegex(ended.stderr, "manifest.json is missing: to copy clients/python alone, use cp -rL or pip")


if __name__ == "__main__":
    unittest.main()
