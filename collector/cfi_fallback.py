from collector.cfi_file import File
from collector.cfi_steps import NOTHING, Steps


def signal_returns(file: File) -> Steps:
    return NOTHING


def steps(file: File) -> Steps:
    return NOTHING
