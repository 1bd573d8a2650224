"""Gatehouse for Python: limits, semaphores, locks, events and budgets that many processes share.

    import gatehouse

    gh = gatehouse.Client("http://localhost:5505")
    with gh.semaphore("gpu", 4) as hold:
        train(hold)

``gatehouse.aio`` has the same for asyncio, ``gatehouse.wsgi`` and ``gatehouse.asgi`` middleware, and
``gatehouse.transport`` what waits before somebody else's API is called.
"""

from ._wire import Decision
from .capacity import Capacity, Resource
from .client import Barrier, Budget, Client, Counter, Event, Guard, Limiter, Watchdog
from .errors import (
    Conflict,
    Deleted,
    GatehouseError,
    HoldLost,
    Invalid,
    Missing,
    Refused,
    Unavailable,
)
from .hold import Grant, Hold, Reservation

__version__ = "0.1.0.dev0"

__all__ = [
    "Barrier", "Budget", "Capacity", "Client", "Conflict", "Counter", "Decision", "Deleted", "Event",
    "GatehouseError", "Grant", "Guard", "Hold", "HoldLost", "Invalid", "Limiter", "Missing", "Refused",
    "Reservation", "Resource", "Unavailable", "Watchdog",
]  # fmt: skip
