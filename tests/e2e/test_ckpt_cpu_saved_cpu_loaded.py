"""Checkpoints: saved with the optimizer on the CPU, gone on with it on the CPU."""

from tests.e2e import checkpoints


def test_goes_on_where_it_was() -> None:
    checkpoints.prepare()
    checkpoints.execute(__file__, saved_on="cpu", loaded_on="cpu")
