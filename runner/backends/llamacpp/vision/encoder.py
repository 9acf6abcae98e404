"""Embeddings of pictures and recordings by llama.cpp's libmtmd and a projector file.

Owns the native projector and what it says of its model: how many tokens a picture or a recording
is, their positions, and whether they see each other in both directions. Knows nothing of prompts,
of files or of caches. Encoding runs beside the decoding of text: the projector has buffers of its
own.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as native
from llama_cpp import mtmd_cpp as mtmd
from numpy.typing import NDArray

from runner.backends.backend import (
    AUDIO_SAMPLE_RATE,
    BackendError,
    DecodedAudio,
    DecodedImage,
    ImagePart,
    ImageSlot,
    VisionEncoder,
)
from runner.backends.host_sampling import native_log
from runner.backends.host_sampling.threads import threads_for
from runner.backends.llamacpp.vision.projector import check_projector
from runner.errors import InvalidRequest, ModelLoadFailed
from runner.types import LoadPlan

_BITMAP_BYTES = 3  # of a pixel
_MIN_SAMPLES = AUDIO_SAMPLE_RATE // 10
_TOKEN_MULTIPLE = 64  # some sizes give a few tokens more than those that are measured
# A picture of each of these sizes is measured to learn how large a part can be
_PROBE_SIZES = ((64, 64), (2048, 2048), (8192, 8192), (8192, 512), (512, 8192))


class MtmdSlot:
    """See runner.backends.backend.ImageSlot. Holds the picture as the projector wants it."""

    def __init__(self, chunk: Any) -> None:
        """Takes over chunk."""
        self.chunk = chunk
        self.tokens = int(mtmd.mtmd_input_chunk_get_n_tokens(chunk))
        weakref.finalize(self, mtmd.mtmd_input_chunk_free, chunk)


class LlamaCppVisionEncoder(VisionEncoder):
    """A projector file, by llama.cpp's mtmd."""

    def __init__(self, handle: Any, width: int) -> None:
        """Takes over handle, an mtmd_context. width: numbers of an embedding."""
        self._handle = handle
        self._width = width
        self.sees = bool(mtmd.mtmd_support_vision(handle))
        self._lock = threading.Lock()
        self.close: Callable[[], object] = weakref.finalize(self, mtmd.mtmd_free, handle)
        self.uses_mrope = bool(mtmd.mtmd_decode_use_mrope(handle))
        # The most tokens of a part that must be computed in one batch, since they see each other;
        # 0 where every batch will do
        self.max_noncausal_tokens = self._measure_noncausal()

    def read(self, media: DecodedImage | DecodedAudio) -> list[list[int] | ImageSlot]:
        if isinstance(media, DecodedImage):
            return self._read_picture(media)
        if len(media.samples) < _MIN_SAMPLES:
            raise InvalidRequest("a recording is shorter than 0.1 s", param="messages")
        samples = media.samples.astype(np.float32) / 32768
        pointer = samples.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        bitmap = mtmd.mtmd_bitmap_init_from_audio(len(samples), pointer)
        return self._pieces(bitmap, f"the recording of {len(samples) / AUDIO_SAMPLE_RATE:.1f} s")

    def _read_picture(self, picture: DecodedImage) -> list[list[int] | ImageSlot]:
        if len(picture.rgb) != picture.width * picture.height * _BITMAP_BYTES:
            raise ValueError(f"{len(picture.rgb)} bytes are not an image of this size")
        pixels = ctypes.cast(ctypes.c_char_p(picture.rgb), ctypes.POINTER(ctypes.c_uint8))
        pieces = self._read(picture.width, picture.height, pixels)
        max_tokens = self.max_noncausal_tokens
        if max_tokens and any(isinstance(x, MtmdSlot) and x.tokens > max_tokens for x in pieces):
            raise InvalidRequest(
                f"the image of {picture.width} x {picture.height} pixels is more than {max_tokens} "
                "tokens, which this model must see at once; send it smaller",
                param="messages",
            )
        return pieces

    def encode(self, slot: ImageSlot) -> ImagePart:
        assert isinstance(slot, MtmdSlot)
        with self._lock:
            if mtmd.mtmd_encode_chunk(self._handle, slot.chunk) != 0:
                raise BackendError("llama.cpp could not encode it")
            pointer = mtmd.mtmd_get_output_embd(self._handle)
            view = np.ctypeslib.as_array(pointer, shape=(slot.tokens, self._width))
            vectors = view.copy()
        if not np.isfinite(vectors).all():
            raise BackendError("the projector produced invalid embeddings (NaN)")
        return ImagePart(
            vectors=vectors,
            advance=int(mtmd.mtmd_input_chunk_get_n_pos(slot.chunk)),
            places=self._places(slot) if self.uses_mrope else None,
            causal=not mtmd.mtmd_decode_use_non_causal(self._handle, slot.chunk),
        )

    def lacks_tokens(self) -> bool:
        """Whether the vocabulary has not all tokens that stand around and between the parts of
        images: libmtmd puts -1 in their place."""
        if not self.sees:
            return False
        pieces = self._read(*_PROBE_SIZES[1], None)
        return any(token < 0 for piece in pieces if isinstance(piece, list) for token in piece)

    def _measure_noncausal(self) -> int:
        if not self.sees or not mtmd.mtmd_decode_use_non_causal(self._handle, None):
            return 0
        found = [self._read(width, height, None) for width, height in _PROBE_SIZES]
        most = max(x.tokens for parts in found for x in parts if isinstance(x, MtmdSlot))
        return -(-most // _TOKEN_MULTIPLE) * _TOKEN_MULTIPLE

    def _places(self, slot: MtmdSlot) -> NDArray[np.int32]:
        """Positions [4, tokens] less that of the first token, in the order of llama.cpp's batches:
        time, row, column and a fourth that text models do not read."""
        image = mtmd.mtmd_input_chunk_get_tokens_image(slot.chunk)
        if not image:  # what is heard is one after the other, as texts are
            table = np.zeros((4, slot.tokens), np.int32)
            table[:3] = np.arange(slot.tokens)
            return table
        found = (mtmd.mtmd_decoder_pos * slot.tokens)()
        mtmd.mtmd_helper_image_get_decoder_pos(image, 0, found)
        table = np.frombuffer(found, np.uint32).reshape(slot.tokens, 4).astype(np.int32)
        return np.ascontiguousarray(table[:, [0, 2, 1, 3]].T)

    def _read(self, width: int, height: int, pixels: Any) -> list[list[int] | ImageSlot]:
        """What mtmd_tokenize makes of a picture alone; pixels None: of one to be measured only."""
        bitmap = mtmd.mtmd_bitmap_init(width, height, pixels)
        return self._pieces(bitmap, f"the image of {width} x {height} pixels")

    def _pieces(self, bitmap: Any, what: str) -> list[list[int] | ImageSlot]:
        """Takes over bitmap."""
        with ExitStack() as resources:
            resources.callback(mtmd.mtmd_bitmap_free, bitmap)
            chunks = mtmd.mtmd_input_chunks_init()
            resources.callback(mtmd.mtmd_input_chunks_free, chunks)
            part = mtmd.mtmd_input_part(None, bitmap)
            parts = (ctypes.POINTER(mtmd.mtmd_input_part) * 1)(ctypes.pointer(part))
            code = mtmd.mtmd_tokenize_from_parts(self._handle, chunks, parts, 1, False)
            if code != 0:
                raise InvalidRequest(
                    f"{what} cannot be prepared for this model; use another length or aspect ratio",
                    param="messages",
                )
            count = mtmd.mtmd_input_chunks_size(chunks)
            return [_piece(mtmd.mtmd_input_chunks_get(chunks, at)) for at in range(count)]


def load_vision_encoder(
    path: Path, plan: LoadPlan, model: Any, library_errors: Sequence[str]
) -> LlamaCppVisionEncoder:
    """The projector at path for model. Raises ModelLoadFailed with the library's last words."""
    check_projector(path)
    native_log.install_for_images()
    params = mtmd.mtmd_context_params_default()
    params.use_gpu = plan.gpu_layers != 0
    params.print_timings = False
    params.warmup = False  # it takes as long as a picture, at every load
    params.n_threads = plan.threads or threads_for(path.stat().st_size)
    handle = mtmd.mtmd_init_from_file(os.fsencode(path), model, params)
    if not handle:
        raise _refused(path, "llama.cpp cannot load it for this model", library_errors)
    hears = mtmd.mtmd_support_audio(handle)
    rate = mtmd.mtmd_get_audio_sample_rate(handle) if hears else AUDIO_SAMPLE_RATE
    if rate != AUDIO_SAMPLE_RATE or not (hears or mtmd.mtmd_support_vision(handle)):
        mtmd.mtmd_free(handle)
        raise _refused(path, "it supports neither images nor 16 kHz audio", library_errors)
    vision = LlamaCppVisionEncoder(handle, int(native.llama_model_n_embd_inp(model)))
    if vision.lacks_tokens():
        vision.close()
        raise _refused(path, "the model has no tokens that delimit images", ())
    return vision


def _refused(path: Path, what: str, library_errors: Sequence[str]) -> ModelLoadFailed:
    said = "; ".join(" ".join(line.split()) for line in list(library_errors)[-3:])
    reason = f" ({said})" if said else ""
    return ModelLoadFailed(f"the projector {path.name} was rejected: {what}{reason}")


def _piece(chunk: Any) -> list[int] | ImageSlot:
    if mtmd.mtmd_input_chunk_get_type(chunk) == mtmd.MTMD_INPUT_CHUNK_TYPE_TEXT:
        count = ctypes.c_size_t(0)
        tokens = mtmd.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(count))
        return [] if tokens is None else list(tokens[: count.value])
    return MtmdSlot(mtmd.mtmd_input_chunk_copy(chunk))
