from conch_step import served
from conch_tokenizer import Tokenize

TritonPythonModel = served(Tokenize)
