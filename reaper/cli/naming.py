"""Which machine a person means: a whole id, a native id, or a name that only one machine has."""

from dataclasses import dataclass
from difflib import get_close_matches

from reaper.errors import UsageError
from reaper.model.kinds.instance import Instance
from reaper.model.resource import ResourceId
from reaper.ports import KeptListing, Store
from reaper.service.inventory import Inventory, kept


class Nobody(UsageError):
    """No machine that we know has this id or name."""


@dataclass(frozen=True, slots=True)
class Found:
    """``instance`` and ``listing`` None: not in the newest listings. ``seen``: we have ever met it."""

    id: ResourceId
    inventory: Inventory
    instance: Instance | None = None
    listing: KeptListing | None = None
    seen: bool = False

    @property
    def title(self) -> str:
        return self.instance.title if self.instance is not None else self.id.native


def find(store: Store, text: str) -> Found:
    """
    A native id wins over a name, since anybody can name a machine like another's id.

    Raises Nobody when nothing fits, UsageError when more than one does; a whole id always fits.
    """
    inventory = kept(store)
    listed = inventory.instances
    met = {*listed, *inventory.ledgers, *store.voices()}
    if ":" in text:
        try:
            id = ResourceId.parse(text)
        except ValueError as error:
            raise UsageError(str(error)) from error
    else:
        fitting = {r for r in met if r.native == text} or {i.id for i, _ in listed.values() if i.name == text}
        if len(fitting) > 1:
            some = ", ".join(str(r) for r in sorted(fitting)[:5])
            raise UsageError(f"{text!r} fits {len(fitting)} machines; give a whole id: {some}" + (", ..." if len(fitting) > 5 else ""))
        if not fitting:
            raise Nobody(_hint(text, inventory))
        id = fitting.pop()
    instance, listing = listed.get(id, (None, None))
    return Found(id, inventory, instance, listing, seen=id in met or bool(store.attempts(resource=id, limit=1)))


def _hint(text: str, inventory: Inventory) -> str:
    names = {word: str(i.id) for i, _ in inventory.instances.values() for word in (i.name, i.id.native) if word}
    close = get_close_matches(text, names, 3, 0.75)
    if close:
        hint = f"did you mean {' or '.join(close)}?"
    elif inventory.listings:
        hint = "`reaper inventory` shows them; one that was never listed needs its whole id, as aws:123456789012:eu-west-1:instance:i-0abc"
    else:
        hint = "nothing was listed yet: run `reaper plan`, or give a whole id, as aws:123456789012:eu-west-1:instance:i-0abc"
    return f"no machine has the id or name {text!r}; {hint}"
