"""Servers that a command is about to make things on: what is wrong with a URL is said before anything is made."""

from __future__ import annotations


def reached_database(url: str) -> str:
    """The URL with its driver, once a connection was made. Raises what is wrong with it."""
    from sqlalchemy.exc import SQLAlchemyError

    from ..store.engines import connect_error, relay_engine

    engine = relay_engine(url)
    try:
        engine.connect().close()
    except SQLAlchemyError as error:
        raise connect_error(error, url) from error
    finally:
        engine.dispose()
    return engine.url.render_as_string(hide_password=False)


def reach_broker(url: str) -> None:
    """Open a publisher and close it. Raises what is wrong with the URL or its server."""
    from ..publish.registry import open_publisher

    open_publisher(url).close()
