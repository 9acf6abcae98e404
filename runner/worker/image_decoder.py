"""Image files as pixels: PNG, JPEG, WebP, GIF (the first frame) and BMP, by Pillow.

What comes in is untrusted. Nothing is decoded before its size is known and allowed. Pillow is
optional: without it images are refused with the way to install it. Knows no model.
"""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Final

from runner.backends.backend import DecodedImage
from runner.errors import InvalidRequest, Unsupported

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

MAX_PIXELS: Final = 50_000_000
MAX_ASPECT_RATIO: Final = 200  # the longer side by the shorter one; models scale it to nothing
_FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
_WHITE: Final = (255, 255, 255, 255)


def decode(data: bytes) -> DecodedImage:
    """The image upright, on white where it is transparent. Raises InvalidRequest, Unsupported
    where Pillow is missing."""
    try:
        from PIL import Image
    except ImportError:
        raise Unsupported(
            "images need Pillow, which is not installed: run ./install.sh again, or pip install "
            "'hearth[vision]'",
            param="messages",
        ) from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sizes, which are checked below, and of metadata
        try:
            with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
                _check_size(image.width, image.height)
                image.load()
                return _picture(_upright(image))
        except InvalidRequest:
            raise
        except Exception as error:  # Pillow raises whatever a damaged file leads it to
            reason = str(error) or type(error).__name__
            raise InvalidRequest(
                f"an image of {len(data)} bytes cannot be decoded: {_short(reason)}; send PNG, "
                "JPEG, WebP, GIF or BMP",
                param="messages",
            ) from error


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise InvalidRequest(
            f"an image has {width} x {height} pixels, at most {MAX_PIXELS // 1_000_000} "
            "million are taken; send it smaller",
            param="messages",
        )
    if max(width, height) > MAX_ASPECT_RATIO * min(width, height):
        raise InvalidRequest(
            f"an image has {width} x {height} pixels; one side may be {MAX_ASPECT_RATIO} times the "
            "other at most",
            param="messages",
        )


def _short(reason: str) -> str:
    """Without the address of the object that Pillow was reading."""
    return reason.split(" <_io")[0][:200]


def _upright(image: PillowImage) -> PillowImage:
    from PIL import ImageOps

    try:
        turned = ImageOps.exif_transpose(image)
    except Exception:  # broken metadata say nothing of the pixels
        return image
    return image if turned is None else turned


def _picture(image: PillowImage) -> DecodedImage:
    from PIL import Image

    if image.mode.startswith("I"):  # 16 bits a pixel
        image = image.convert("I").point(lambda value: value * (1 / 256)).convert("L")
    if image.has_transparency_data:
        front = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", front.size, _WHITE), front)
    rgb = image.convert("RGB")
    return DecodedImage(rgb.width, rgb.height, rgb.tobytes())
