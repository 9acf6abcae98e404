"""The icon in the tray, as the interface org.kde.StatusNotifierItem describes it:
https://www.freedesktop.org/wiki/Specifications/StatusNotifierItem/"""

# No postponed annotations: dbus-fast reads them, and takes "None" for a type.
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from dbus_fast import PropertyAccess
from dbus_fast.annotations import DBusBool, DBusInt32, DBusObjectPath, DBusSignature, DBusStr
from dbus_fast.service import ServiceInterface, dbus_method, dbus_property, dbus_signal

from cli.service import desktop
from cli.tray import dbus_menu

PATH = "/StatusNotifierItem"
_NAME = "hearth"  # of the program, and of its icon
_Pixmaps = Annotated[list[tuple[int, int, bytes]], DBusSignature("a(iiay)")]
_Text = Annotated[list[object], DBusSignature("(sa(iiay)ss)")]


class StatusItem(ServiceInterface):
    """The icon. on_activate: it was clicked, and not for its menu."""

    def __init__(self, on_activate: Callable[[], None]) -> None:
        super().__init__("org.kde.StatusNotifierItem")
        self._on_activate = on_activate
        self._text = ""

    def tell(self, text: str) -> None:
        """Show text beside the pointer that rests on the icon."""
        if text != self._text:
            self._text = text
            self.NewToolTip()

    @dbus_property(access=PropertyAccess.READ)
    def Category(self) -> DBusStr:
        return "ApplicationStatus"

    @dbus_property(access=PropertyAccess.READ)
    def Id(self) -> DBusStr:
        return _NAME

    @dbus_property(access=PropertyAccess.READ)
    def Title(self) -> DBusStr:
        return _NAME

    @dbus_property(access=PropertyAccess.READ)
    def Status(self) -> DBusStr:
        return "Active"

    @dbus_property(access=PropertyAccess.READ)
    def WindowId(self) -> DBusInt32:
        return 0

    @dbus_property(access=PropertyAccess.READ)
    def IconName(self) -> DBusStr:
        return _NAME

    @dbus_property(access=PropertyAccess.READ)
    def IconThemePath(self) -> DBusStr:
        return str(Path(desktop.__file__).parent)

    @dbus_property(access=PropertyAccess.READ)
    def IconPixmap(self) -> _Pixmaps:
        return []

    @dbus_property(access=PropertyAccess.READ)
    def ToolTip(self) -> _Text:
        return [_NAME, [], _NAME, self._text]

    @dbus_property(access=PropertyAccess.READ)
    def ItemIsMenu(self) -> DBusBool:
        return False

    @dbus_property(access=PropertyAccess.READ)
    def Menu(self) -> DBusObjectPath:
        return dbus_menu.PATH

    @dbus_method()
    def Activate(self, x: DBusInt32, y: DBusInt32) -> None:
        self._on_activate()

    @dbus_method()
    def SecondaryActivate(self, x: DBusInt32, y: DBusInt32) -> None:
        """Nothing: the specification has it."""

    @dbus_method()
    def ContextMenu(self, x: DBusInt32, y: DBusInt32) -> None:
        """Nothing: the desktop shows the menu."""

    @dbus_method()
    def Scroll(self, delta: DBusInt32, orientation: DBusStr) -> None:
        """Nothing: the specification has it."""

    @dbus_signal()
    def NewToolTip(self) -> None:
        """ToolTip has changed."""
