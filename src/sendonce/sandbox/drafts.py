"""What a request to create or change a campaign says, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sendonce.sandbox.campaigns import READ_ONLY, SETTINGS, TRACKING, TYPES
from sendonce.sandbox.problems import bad_request, invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sendonce.sandbox.campaigns import Campaign

_KEPT_AS_GIVEN = ("rss_opts", "variate_settings", "social_card")
_CONTENT_KINDS = ("html", "plain_text", "url", "template", "archive", "variate_contents")


def body_object(body: object) -> dict[str, object]:
    """Take the body as an object. Raise a 400 problem for anything else."""
    if not isinstance(body, dict):
        raise bad_request("The request body must be a JSON object.")
    return body


def campaign_type(body: Mapping[str, object]) -> str:
    """Read the `type` of a campaign to create. Raise a 400 problem if it is none."""
    kind = body.get("type")
    if not isinstance(kind, str) or kind not in TYPES:
        raise invalid("type", f"Value must be one of: {', '.join(TYPES)}")
    return kind


def write(campaign: Campaign, body: Mapping[str, object]) -> None:
    """Write settings, tracking and options of `body` to a draft, or raise a 400 problem and write nothing.

    Recipients are the account's to check: it knows the audiences.
    """
    settings = campaign.settings | _checked(body, "settings", SETTINGS)
    tracking = campaign.tracking | _checked(body, "tracking", TRACKING)
    campaign.options |= {name: _object(body, name) for name in _KEPT_AS_GIVEN if body.get(name) is not None}
    campaign.settings, campaign.tracking = settings, tracking


def recipients(body: Mapping[str, object]) -> tuple[str, dict[str, object]] | None:
    """Read list id and segment_opts of a body, None if it does not speak of recipients."""
    if body.get("recipients") is None:
        return None
    given = _object(body, "recipients")
    list_id = given.get("list_id")
    if not isinstance(list_id, str):
        raise invalid("recipients.list_id", "This value should not be blank.")
    return list_id, segment_opts(_object(given, "segment_opts"), "recipients.segment_opts")


def segment_opts(given: dict[str, object], field: str) -> dict[str, object]:
    """Check `segment_opts`, or the `options` of a segment, as far as the sandbox reads them."""
    conditions = given.get("conditions", [])
    if not isinstance(conditions, list) or not all(isinstance(one, dict) for one in conditions):
        raise invalid(f"{field}.conditions", "Schema describes array of objects")
    if given.get("match", "all") not in {"any", "all"}:
        raise invalid(f"{field}.match", "Value must be one of: any, all")
    if type(given.get("saved_segment_id", 0)) is not int:
        raise invalid(f"{field}.saved_segment_id", "Schema describes integer")
    return given


def content(campaign: Campaign, body: Mapping[str, object]) -> tuple[str, dict[str, str]]:
    """Work out the content type and the content that a PUT makes. What stays unsaid is kept."""
    if not any(kind in body for kind in _CONTENT_KINDS):
        raise bad_request("The content needs one of: " + ", ".join(_CONTENT_KINDS))
    texts = {name: body[name] for name in ("html", "plain_text", "url") if name in body}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise invalid(name, "Schema describes string")
    made = dict(campaign.content)
    kind = campaign.content_type
    if "template" in body:
        kind, made["html"] = "template", _rendered(_object(body, "template"))
    if "url" in texts:
        kind, made["html"] = "url", f"<p>imported from {texts['url']}</p>"
    if "archive" in body:
        kind, made["html"] = "html", "<p>imported from an archive</p>"
    if "html" in texts:
        kind, made["html"] = "html", str(texts["html"])
    if "plain_text" in texts:
        made["plain_text"] = str(texts["plain_text"])
    return kind, made


def _rendered(template: Mapping[str, object]) -> str:
    if type(template.get("id")) is not int:
        raise invalid("template.id", "Schema describes integer")
    sections = _object(template, "sections")
    return f"<!-- template {template['id']} -->" + "".join(f"<div>{text}</div>" for text in sections.values())


def _object(body: Mapping[str, object], name: str) -> dict[str, object]:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid(name, "Schema describes object")
    return dict(value)


def _checked(body: Mapping[str, object], name: str, known: Mapping[str, object]) -> dict[str, object]:
    """Pick the known, writable names of an object in `body`; unknown ones are left out, as Mailchimp does."""
    given = _object(body, name)
    accepted = {key: value for key, value in given.items() if key in known and key not in READ_ONLY}
    for key, value in accepted.items():
        if type(value) is not type(known[key]):
            kind = {str: "string", bool: "boolean", int: "integer"}[type(known[key])]
            raise invalid(f"{name}.{key}", f"Schema describes {kind}, {type(value).__name__} found instead")
    return accepted
