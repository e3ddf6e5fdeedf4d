"""Command line and environment -> one frozen configuration a command, checked once and printed once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from onechip.cache import cache_root
from onechip.engine.types import Dtype, EngineConfig, KernelsWish
from onechip.errors import UsageError


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """What `onechip serve` runs with.

    Attributes:
        model: folder, hub id, or "acorn".
        host, port: where to listen; port 0 takes a free one.
        api_key: what clients must send as a bearer token; None asks for none.
        context: tokens of one request, prompt and output together; None lets the memory plan choose.
        max_requests: requests at once; None lets the memory plan choose. The limits of both depend on the
            model and the engine, and are checked there (engine.plan).
        dtype: precision of the weights, see engine.types.Dtype.
        kernels: who multiplies, see engine.types.KernelsWish.
        prefix_reuse: prompts that begin as earlier ones did are not computed again so far.
        chat_template: a file with the Jinja template to use; None takes the checkpoint's.
        cache_dir: where compiled programs are kept.
    """

    model: str = "acorn"
    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    context: int | None = None
    max_requests: int | None = None
    dtype: Dtype = "auto"
    kernels: KernelsWish = "auto"
    prefix_reuse: bool = True
    chat_template: Path | None = None
    cache_dir: Path = Path("~/.cache/onechip")

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise UsageError(f"--port {self.port} is not a port: give 0 (any free one) to 65535.")
        if self.dtype not in get_args(Dtype):
            raise UsageError(f"--dtype {self.dtype!r} is unknown: give {', '.join(get_args(Dtype))}.")
        if self.kernels not in get_args(KernelsWish):
            known = ", ".join(get_args(KernelsWish))
            raise UsageError(f"--kernels {self.kernels!r} is unknown: give {known}.")
        if self.api_key == "":
            raise UsageError("--api-key is empty: give a key, or leave it out to ask for none.")

    def with_environment(self, environment: Mapping[str, str] = os.environ) -> ServeConfig:
        """This configuration with what the environment adds to it.

        Read are ONECHIP_API_KEY (if no --api-key was given: a command line can be seen by other users) and
        ONECHIP_CACHE_DIR, XDG_CACHE_HOME.
        """
        return replace(
            self,
            api_key=self.api_key or environment.get("ONECHIP_API_KEY") or None,
            cache_dir=_cache_dir(environment),
        )

    @property
    def model_id(self) -> str:
        """What the API calls the model: a folder's name, or else the model as it was given."""
        path = Path(self.model).expanduser()
        return path.resolve().name if path.is_dir() and self.model != "acorn" else self.model

    def engine(self, folder: Path) -> EngineConfig:
        """The part that concerns the engine; `folder` holds the checkpoint."""
        return EngineConfig(
            model=folder,
            context=self.context,
            max_requests=self.max_requests,
            dtype=self.dtype,
            kernels=self.kernels,
            cache_dir=self.cache_dir,
            reuse=self.prefix_reuse,
        )

    def describe(self) -> str:
        """One line for the terminal; the key itself is not shown."""
        context, requests = ("auto" if wish is None else wish for wish in (self.context, self.max_requests))
        return (
            f"serve {self.model} on {self.host}:{self.port}, dtype {self.dtype}, "
            f"context {context}, max requests {requests}, "
            f"prefix reuse {'on' if self.prefix_reuse else 'off'}, "
            f"API key {'required' if self.api_key else 'none'}, cache {self.cache_dir}"
        )


@dataclass(frozen=True, slots=True)
class ChatConfig:
    """Whom `onechip chat` talks to.

    Attributes:
        model: folder, hub id, or "acorn", which None means, for a server of our own; with `url`, what that
            server calls it, None its first.
        url: of a running server; None starts one.
        api_key: what the server asks for as a bearer token.
        cache_dir: where the history of lines is kept.
    """

    model: str | None = None
    url: str | None = None
    api_key: str | None = None
    cache_dir: Path = Path("~/.cache/onechip")

    def __post_init__(self) -> None:
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise UsageError(f"--url {self.url!r} is no address: give http://host:port.")

    def with_environment(self, environment: Mapping[str, str] = os.environ) -> ChatConfig:
        """This configuration with what the environment adds to it.

        Read are ONECHIP_API_KEY, with a URL also OPENAI_API_KEY (if no --api-key was given), and
        ONECHIP_CACHE_DIR, XDG_CACHE_HOME.
        """
        others = environment.get("OPENAI_API_KEY") if self.url else None
        return replace(
            self,
            api_key=self.api_key or environment.get("ONECHIP_API_KEY") or others or None,
            cache_dir=_cache_dir(environment),
        )


def _cache_dir(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("ONECHIP_CACHE_DIR") or cache_root(environment)).expanduser()
