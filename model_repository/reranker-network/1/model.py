from conch_network import Network
from conch_step import served

TritonPythonModel = served(Network)
