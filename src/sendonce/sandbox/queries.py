"""What the query of a request narrows, orders and cuts out: listings, pages, fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from sendonce.sandbox.campaigns import LISTED_STATUSES, TYPES
from sendonce.sandbox.messages import time_value
from sendonce.sandbox.problems import bad_request, invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from sendonce.sandbox.account import Account
    from sendonce.sandbox.campaigns import Campaign

    Query = Mapping[str, str]

T = TypeVar("T")

_DEFAULT_COUNT = 10
_MAX_COUNT = 1000
_TIMES = ("since_create_time", "before_create_time", "since_send_time", "before_send_time")


def page(items: Sequence[T], query: Query) -> Sequence[T]:
    """Cut out the page that `count` and `offset` name. Raise a 400 problem beyond 1000."""
    count = _number(query, "count", _DEFAULT_COUNT)
    offset = _number(query, "offset", 0)
    if count > _MAX_COUNT:
        raise bad_request(f"The count cannot be greater than {_MAX_COUNT}.")
    return items[offset : offset + count]


def campaign_filter(account: Account, query: Query) -> Callable[[Campaign], bool]:
    """Make one question about a campaign of all the filters. Raise a 400 problem for a bad one."""
    _check_word(query, "type", TYPES)
    _check_word(query, "status", LISTED_STATUSES)
    limits = {name: _time(query, name) for name in _TIMES if query.get(name)}

    def fits(one: Campaign) -> bool:
        shown = {
            "list_id": one.list_id,
            "type": one.type,
            "folder_id": one.settings["folder_id"],
            "status": account.shown_status(one),
        }
        if any(query.get(name, value) != value for name, value in shown.items()):
            return False
        times = {"create_time": int(one.created), "send_time": one.send_time}
        return all(_is_within(times[name.partition("_")[2]], name, limit) for name, limit in limits.items())

    return fits


def ordered(campaigns: Iterable[Campaign], query: Query) -> list[Campaign]:
    """Order campaigns as `sort_field` and `sort_dir` say; by create_time, newest first, if they do not."""
    _check_word(query, "sort_field", ("create_time", "send_time"))
    _check_word(query, "sort_dir", ("ASC", "DESC"))
    is_by_send_time = query.get("sort_field") == "send_time"
    return sorted(
        campaigns,
        key=lambda one: ((one.send_time or 0) if is_by_send_time else int(one.created), one.id),
        reverse=query.get("sort_dir", "DESC") == "DESC",
    )


def pruned(document: dict[str, Any], query: Query) -> dict[str, Any]:
    """Keep only the `fields`, and drop the `exclude_fields`, that a query names (dotted, commas between)."""
    wanted, unwanted = query.get("fields", ""), query.get("exclude_fields", "")
    if wanted:
        document = _only(document, _tree(wanted))
    if unwanted:
        document = _without(document, _tree(unwanted))
    return document


def _number(query: Query, name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdecimal()):
        raise invalid(name, "Schema describes integer")
    return int(text)


def _check_word(query: Query, name: str, words: Collection[str]) -> None:
    if name in query and query[name] not in words:
        raise invalid(name, f"Value must be one of: {', '.join(words)}")


def _time(query: Query, name: str) -> float:
    try:
        return time_value(query[name]) or 0.0
    except ValueError:
        raise invalid(name, "Schema describes date-time") from None


def _is_within(moment: float | None, name: str, limit: float) -> bool:
    if moment is None:
        return False
    return moment >= limit if name.startswith("since") else moment < limit


def _tree(names: str) -> dict[str, Any]:
    """Turn dotted names into nested dicts; an empty dict means "and everything below"."""
    tree: dict[str, Any] = {}
    for path in names.split(","):
        branch = tree
        for name in path.strip().split("."):
            branch = branch.setdefault(name, {})
    return tree


def _only(value: Any, tree: dict[str, Any]) -> Any:
    if not tree:
        return value
    if isinstance(value, list):
        return [_only(one, tree) for one in value]
    if isinstance(value, dict):
        return {name: _only(value[name], below) for name, below in tree.items() if name in value}
    return value


def _without(value: Any, tree: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_without(one, tree) for one in value]
    if isinstance(value, dict):
        return {
            name: _without(one, tree[name]) if name in tree else one
            for name, one in value.items()
            if name not in tree or tree[name]
        }
    return value
