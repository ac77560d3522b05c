from conch_step import served
from conch_language import Features

TritonPythonModel = served(Features)
