from conch_step import served
from conch_windows import Windows

TritonPythonModel = served(Windows)
