"""The rows of the TPC-C-like dataset, as the specification describes the first population (TPC-C 5.11, 4.3.3).

All of it follows from the seed, and each warehouse by itself, so that they can be loaded side by side. A row is a
tuple of texts; NULL is the word below. Texts are letters and digits alone: nothing in them has to be quoted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

NULL: Final = "\\N"  # as COPY writes it
Row = tuple[str, ...]

SYLLABLES: Final = ("BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING")  # 4.3.2.3
NAMES: Final = 1000  # last names that there are: three syllables
C_LOAD: Final = 157  # of NURand for last names; workloads/tpcc.lua has the run's, which must be 65..119 away (2.1.6.1)
PAID: Final = 10  # of each customer, once: history, c_ytd_payment, and so d_ytd and w_ytd follow from it
DELIVERED: Final = 0.7  # share of the first orders that were delivered: 2100 of 3000
BEGAN: Final = "2020-01-01 00:00:00"  # one date for all: the same bytes on every day
_POOL: Final = 2**20  # letters that texts are cut out of: more than any filesystem compresses at once
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(frozen=True)
class Scale:
    """How much there is; the specification's are the defaults of the kind `tpcc`."""

    warehouses: int
    districts: int  # of a warehouse
    customers: int  # of a district; as many orders
    items: int  # as many rows of stock a warehouse
    seed: int


def last_name(number: int) -> str:
    """The last name of that number, 0 to 999."""
    return SYLLABLES[number // 100] + SYLLABLES[number // 10 % 10] + SYLLABLES[number % 10]


class Rows:
    """One warehouse's rows, or with warehouse 0 the items, which all have in common."""

    def __init__(self, scale: Scale, warehouse: int) -> None:
        self.scale, self.warehouse = scale, warehouse
        self._rng = random.Random(f"{scale.seed} {warehouse}")
        self._pool = "".join(random.Random(scale.seed).choices(_LETTERS, k=_POOL))

    def tables(self) -> Iterator[tuple[str, Iterator[Row]]]:
        """Its tables with their rows, each in the order of its primary key."""
        if self.warehouse == 0:
            yield "item", self._items()
            return
        yield "warehouse", iter([self._warehouse()])
        yield "stock", self._stock()
        for district in range(1, self.scale.districts + 1):
            yield "district", iter([self._district(district)])
            yield "customer", self._customers(district)
            yield "history", self._history(district)
            orders, lines, waiting = self._orders(district)
            yield "orders", iter(orders)
            yield "new_order", iter(waiting)
            yield "order_line", iter(lines)

    def _items(self) -> Iterator[Row]:
        for number in range(1, self.scale.items + 1):
            price = f"{self._between(100, 10000) / 100:.2f}"
            yield str(number), str(self._between(1, 10000)), self._text(14, 24), price, self._data()

    def _warehouse(self) -> Row:
        ytd = PAID * self.scale.customers * self.scale.districts
        return str(self.warehouse), self._text(6, 10), *self._address(), self._rate(2000), f"{ytd}.00"

    def _district(self, district: int) -> Row:
        ytd, following = PAID * self.scale.customers, self.scale.customers + 1
        own = (str(self.warehouse), str(district), self._text(6, 10), *self._address(), self._rate(2000))
        return *own, f"{ytd}.00", str(following)

    def _stock(self) -> Iterator[Row]:
        own = str(self.warehouse)
        for item in range(1, self.scale.items + 1):
            districts = [self._text(24, 24) for _ in range(10)]
            yield own, str(item), str(self._between(10, 100)), *districts, "0", "0", "0", self._data()

    def _customers(self, district: int) -> Iterator[Row]:
        own, names = (str(self.warehouse), str(district)), min(NAMES, self.scale.customers)
        for number in range(1, self.scale.customers + 1):
            name = last_name(number - 1 if number <= names else self._non_uniform(255, names - 1))
            credit = "BC" if self._rng.random() < 0.1 else "GC"
            person = (self._text(8, 16), "OE", name, *self._address(), self._digits(16), BEGAN)
            yield (
                *own, str(number), *person, credit, "50000.00", self._rate(5000),
                f"-{PAID}.00", f"{PAID}.00", "1", "0", self._text(300, 500),
            )  # fmt: skip

    def _history(self, district: int) -> Iterator[Row]:
        own = (str(district), str(self.warehouse))
        for number in range(1, self.scale.customers + 1):
            yield str(number), *own, *own, BEGAN, f"{PAID}.00", self._text(12, 24)

    def _orders(self, district: int) -> tuple[list[Row], list[Row], list[Row]]:
        """Orders, their lines, and those that wait for delivery: one order of each customer, in random order."""
        own, count = (str(self.warehouse), str(district)), self.scale.customers
        buyers = sorted(range(1, count + 1), key=lambda _: self._rng.random())
        orders, lines, waiting = list[Row](), list[Row](), list[Row]()
        for number, buyer in enumerate(buyers, 1):
            done, many = number <= count * DELIVERED, self._between(5, 15)
            carrier = str(self._between(1, 10)) if done else NULL
            orders.append((*own, str(number), str(buyer), BEGAN, carrier, str(many), "1"))
            if not done:
                waiting.append((*own, str(number)))
            for line in range(1, many + 1):
                amount = "0.00" if done else f"{self._between(1, 999999) / 100:.2f}"
                lines.append((
                    *own, str(number), str(line), str(self._between(1, self.scale.items)), own[0],
                    BEGAN if done else NULL, "5", amount, self._text(24, 24),
                ))  # fmt: skip
        return orders, lines, waiting

    def _address(self) -> Row:
        streets = (self._text(10, 20), self._text(10, 20), self._text(10, 20))
        return *streets, self._text(2, 2), self._digits(4) + "11111"

    def _data(self) -> str:
        """26 to 50 letters, "ORIGINAL" somewhere in one of ten."""
        text = self._text(26, 50)
        if self._rng.random() >= 0.1:
            return text
        at = self._between(0, len(text) - 8)
        return text[:at] + "ORIGINAL" + text[at + 8 :]

    def _text(self, least: int, most: int) -> str:
        at = int(self._rng.random() * (_POOL - most))
        return self._pool[at : at + (least if least == most else self._between(least, most))]

    def _digits(self, count: int) -> str:
        return f"{int(self._rng.random() * 10**count):0{count}}"

    def _rate(self, most: int) -> str:
        return f"{self._between(0, most) / 10000:.4f}"

    def _between(self, least: int, most: int) -> int:
        return least + int(self._rng.random() * (most - least + 1))

    def _non_uniform(self, a: int, most: int) -> int:
        """NURand(a, 0, most) of 2.1.6."""
        return ((self._between(0, a) | self._between(0, most)) + C_LOAD) % (most + 1)
