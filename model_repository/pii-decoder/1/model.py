from conch_step import served
from conch_spans import Spans

TritonPythonModel = served(Spans)
