"""A menu on the bus, as the interface com.canonical.dbusmenu describes it:
https://github.com/AyatanaIndicators/libdbusmenu/blob/master/libdbusmenu-glib/dbus-menu.xml"""

# No postponed annotations: dbus-fast reads them, and takes "None" for a type.
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

from dbus_fast import DBusError, PropertyAccess, Variant
from dbus_fast.annotations import (
    DBusBool,
    DBusInt32,
    DBusSignature,
    DBusStr,
    DBusUInt32,
    DBusVariant,
)
from dbus_fast.service import ServiceInterface, dbus_method, dbus_property, dbus_signal

from cli.tray.menu import Entry

PATH = "/MenuBar"
_ROOT = 0
_LAYOUT = "(ia{sv}av)"
_Properties = dict[str, Variant]
_Item = list[object]  # its number, its properties and, of a layout, the items below it
_Ids = Annotated[list[int], DBusSignature("ai")]
_Names = Annotated[list[str], DBusSignature("as")]


class DbusMenu(ServiceInterface):
    """One level of entries. before_show: awaited when a desktop is about to show the menu. on_open:
    it has, and some say only that."""

    def __init__(
        self,
        on_click: Callable[[Entry], None],
        on_open: Callable[[], None],
        before_show: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__("com.canonical.dbusmenu")
        self._on_click = on_click
        self._on_open = on_open
        self._before_show = before_show
        self._revision = 1
        self._entries: dict[int, Entry] = {}  # by number, in the order of the menu
        self._ids: dict[str, int] = {}  # by key; never used for another

    def show(self, entries: Sequence[Entry]) -> bool:
        """Have these entries. False: they are those that were there."""
        if list(entries) == list(self._entries.values()):
            return False
        for entry in entries:
            self._ids.setdefault(entry.key, len(self._ids) + 1)
        self._entries = {self._ids[entry.key]: entry for entry in entries}
        self._revision += 1
        self.LayoutUpdated()
        return True

    def _item(self, number: int, names: Sequence[str]) -> _Item:
        """An item and the properties that names ask for; none of them: all."""
        if number == _ROOT:
            found: _Properties = {"children-display": Variant("s", "submenu")}
        elif (entry := self._entries.get(number)) is not None:
            found = _properties(entry)
        else:
            raise _unknown(number)
        return [number, {k: v for k, v in found.items() if k in names or not names}]

    async def _shown(self) -> bool:
        before = self._revision
        await self._before_show()
        return self._revision != before

    @dbus_property(access=PropertyAccess.READ)
    def Version(self) -> DBusUInt32:
        return 3

    @dbus_property(access=PropertyAccess.READ)
    def TextDirection(self) -> DBusStr:
        return "ltr"

    @dbus_property(access=PropertyAccess.READ)
    def Status(self) -> DBusStr:
        return "normal"

    @dbus_property(access=PropertyAccess.READ)
    def IconThemePath(self) -> _Names:
        return []

    @dbus_method()
    def GetLayout(
        self, parent: DBusInt32, depth: DBusInt32, names: _Names
    ) -> Annotated[tuple[int, _Item], DBusSignature(f"u{_LAYOUT}")]:
        below = self._entries if parent == _ROOT and depth != 0 else ()
        items = [Variant(_LAYOUT, [*self._item(number, names), []]) for number in below]
        return self._revision, [*self._item(parent, names), items]

    @dbus_method()
    def GetGroupProperties(
        self, ids: _Ids, names: _Names
    ) -> Annotated[list[_Item], DBusSignature("a(ia{sv})")]:
        known = {_ROOT, *self._entries}
        return [self._item(number, names) for number in ids or sorted(known) if number in known]

    @dbus_method()
    def GetProperty(self, number: DBusInt32, name: DBusStr) -> DBusVariant:
        found = self._item(number, [name])[1]
        assert isinstance(found, dict)
        if name not in found:
            raise DBusError(
                "org.freedesktop.DBus.Error.InvalidArgs", f"item {number} has no property {name}"
            )
        value: Variant = found[name]
        return value

    @dbus_method()
    def Event(
        self,
        number: DBusInt32,
        kind: DBusStr,
        data: DBusVariant,
        timestamp: DBusUInt32,
    ) -> None:
        if number not in (_ROOT, *self._entries):
            raise _unknown(number)
        self._happened(number, kind)

    @dbus_method()
    def EventGroup(
        self, events: Annotated[list[tuple[int, str, Variant, int]], DBusSignature("a(isvu)")]
    ) -> _Ids:
        unknown = []
        for number, kind, _, _ in events:
            if number in (_ROOT, *self._entries):
                self._happened(number, kind)
            else:
                unknown.append(number)
        return unknown

    def _happened(self, number: int, kind: str) -> None:
        entry = self._entries.get(number)
        if kind == "opened" and number == _ROOT:
            self._on_open()
        elif kind == "clicked" and entry is not None and entry.is_enabled:
            self._on_click(entry)

    @dbus_method()
    async def AboutToShow(self, number: DBusInt32) -> DBusBool:
        return number == _ROOT and await self._shown()

    @dbus_method()
    async def AboutToShowGroup(
        self, ids: _Ids
    ) -> Annotated[tuple[list[int], list[int]], DBusSignature("aiai")]:
        changed = _ROOT in ids and await self._shown()
        known = (_ROOT, *self._entries)
        return [_ROOT] if changed else [], [number for number in ids if number not in known]

    @dbus_signal()
    def LayoutUpdated(self) -> Annotated[list[int], DBusSignature("ui")]:
        return [self._revision, _ROOT]


def _properties(entry: Entry) -> _Properties:
    if entry.is_separator:
        return {"type": Variant("s", "separator")}
    label = entry.label.replace("_", "__")  # one of them would mark the letter of a shortcut
    return {"label": Variant("s", label), "enabled": Variant("b", entry.is_enabled)}


def _unknown(number: int) -> DBusError:
    return DBusError("org.freedesktop.DBus.Error.InvalidArgs", f"the menu has no item {number}")
