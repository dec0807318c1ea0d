"""The role ``service``: the units of this host's recipes serve, those of others are gone - or all is as before."""

from ..errors import HostError
from ..shapes import Author, ServiceOrder
from . import switch, units


def apply(order: ServiceOrder, author: Author) -> None:
    """Retire what is no longer wanted, then make every unit be there, enabled and serving.

    Raises HostError with the decisive lines of the journal when one does not come to serve; the host then serves what
    it served before, if anything did.
    """
    units.refuse_foreign(order.units)
    try:
        units.change(order.units, order.retired, author)
    except HostError as error:
        raise switch.back(author, str(error)) from None
