"""A simulated plug that keeps what its switch was after each request."""

from __future__ import annotations

from instrumentation.simulators.http import HttpSimulator


class NotingPlug(HttpSimulator):
    """`let_through`: whether it let current through after each request, in their order."""

    def __init__(self, profile: str) -> None:
        super().__init__(profile)
        self.let_through: list[bool] = []

    def answer(self, request: str) -> tuple[str, bytes]:
        answered = super().answer(request)
        self.let_through.append(self.output)
        return answered
