"""Tests the program `turns` of a thin client, which this program starts with the COMMAND. Thin clients do not refresh
leases, and know only weight 1.

    python3 clients/thin [OPTION...] -- COMMAND...

The options are those of `python3 -m unittest discover`, such as `-v` and `-k PATTERN`. Each test starts its own
server: REDIS_SERVER_BIN, or redis-server on the PATH.
"""

import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
# The tests share the code of `programs` and of the Python client's `support`.
sys.path += [str(HERE.parent), str(HERE.parent / "python")]

import thin_test

if "--" not in sys.argv[:-1]:
    sys.exit(__doc__)
end = sys.argv.index("--")
thin_test.COMMAND += sys.argv[end + 1 :]
unittest.main(module=None, argv=["thin", "discover", "-s", str(HERE), *sys.argv[1:end]])
