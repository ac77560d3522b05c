from conch_pairs import Pairs
from conch_step import served

TritonPythonModel = served(Pairs)
