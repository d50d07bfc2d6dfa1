"""What the protocol needs of the world. Each port has one adapter, and the tests' own for faults.

Every method may raise the errors named here and no others for a foreseeable fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from contextlib import AbstractContextManager
    from datetime import datetime

    from sendonce.core.campaigns import Account, Answer, Campaign, Checklist, Content, Listing, Spec
    from sendonce.core.model import Batch, Glance, Page, Pause, Reset
    from sendonce.core.recipients import Duplicate, Got, Mailed, Recipient, Recorded, Row


class Claim(Protocol):
    """The right to write, as the lease gives it."""

    def is_ours(self) -> bool:
        """Whether the lease is this run's at this very moment (read from the marker, not remembered)."""
        ...


class RunStore(Protocol):
    """What a run needs of the ledger. A write is one step with its check, or it does not happen."""

    def load(self, date: str) -> Page:
        """The record of `date` (YYYY-MM-DD), those under `resets` for it, and the open batches before it.

        Raise LedgerDamaged if it cannot be read as a ledger, StateUnusable if the place cannot be
        read or the ledger belongs to another API host.
        """
        ...

    def save(self, page: Page, batch: Batch) -> Page:
        """Write `batch` if the claim is ours and the ledger is still `page`; the page as it is then comes back.

        The batch is that of the page's date or one of its `open_earlier`; the new page is of the same date.

        Raise ClaimLost if either does not hold, StateUnusable if it cannot be written.
        The change must be a legal transition, else InvariantBroken. On return it is on the disk.
        """
        ...

    def check(self, page: Page) -> None:
        """Raise ClaimLost unless the claim is ours and the ledger is still `page`. Writes nothing."""
        ...

    def check_writable(self) -> None:
        """Raise StateUnusable if a later `save` could not be written. Changes nothing."""
        ...


class LedgerStore(RunStore, Protocol):
    """The ledger of one job."""

    def glance(self, date: str) -> Glance:
        """The record of `date` and the pause, which say whether there is work to do. Raises as `load`."""
        ...

    def reset(self, page: Page, reset: Reset) -> Page:
        """Forget the batch of `page` and keep it under `resets`. Raises as `save`."""
        ...

    def set_pause(self, page: Page, pause: Pause) -> Page:
        """Put down that the job is paused, or that its pause has ended. Raises as `save`."""
        ...

    def rebuild(self, batches: Iterable[Batch]) -> str:
        """Put a new ledger in place of whatever is there; where the old one was kept, "" if there was none."""
        ...

    def batches(self) -> tuple[Batch, ...]:
        """All batches, oldest first. Raises as `load`, but not for another API host."""
        ...

    def resets(self) -> tuple[Reset, ...]:
        """All resets, oldest first. Raises as `batches`."""
        ...


class Mailer(Protocol):
    """Mailchimp. Reads retry on their own and raise NoAnswer, CredentialsRejected or Refused (design §3)."""

    def now(self) -> datetime:
        """Mailchimp's time: the last Date header plus the seconds since. NoAnswer if there was none."""
        ...

    def listing(self) -> Listing:
        """All campaigns (of the audience, where one is set), complete; NoAnswer if it cannot be."""
        ...

    def campaign(self, campaign_id: str, *, tries: int = 4) -> Campaign | None:
        """The campaign by id, with settings, recipients and tracking; None if Mailchimp has none (404)."""
        ...

    def content(self, campaign_id: str) -> Content:
        """The campaign's content."""
        ...

    def checklist(self, campaign_id: str) -> Checklist:
        """Whether Mailchimp calls it ready, and what it holds against it."""
        ...

    def account(self) -> Account:
        """The account that the key belongs to."""
        ...

    def segment_type(self, list_id: str, segment_id: int) -> str:
        """What kind of segment it is: "static" for a tag, "saved" for one of conditions."""
        ...

    def audience_size(self, list_id: str, segment_id: int | None = None) -> int | None:
        """Members who would get a mailing to the audience or segment; None if Mailchimp does not say."""
        ...

    def create(self, spec: Spec, title: str) -> Campaign:
        """Create a draft; it has no content yet. One request, never repeated.

        Raise NoAnswer if it may or may not exist now, Refused or CredentialsRejected if Mailchimp said no.
        """
        ...

    def write_settings(self, campaign_id: str, spec: Spec, title: str) -> None:
        """Write settings, recipients and tracking of a draft. One request; raises as `create`."""
        ...

    def write_content(self, campaign_id: str, content: Content) -> None:
        """Write the content of a draft. One request; raises as `create`."""
        ...

    def send(self, campaign_id: str) -> Answer:
        """POST the send, once, whatever happens. Never raises for what an answer can be."""
        ...


class RecipientWriter(Protocol):
    """Reports on their way into the record. Nothing of them counts before `complete`. Raises as the record."""

    def begin(self, campaign: Mailed, total: int, *, keeps_addresses: bool) -> Collection[int]:
        """Begin a report, or go on with it; the numbers of the pages that are there already.

        An earlier one goes on only if its total, and whether addresses are kept, are the same.
        """
        ...

    def put(self, campaign: Mailed, page: int, rows: Collection[Recipient]) -> None:
        """Keep a page that was begun, in one step; one that is there already stays."""
        ...

    def complete(self, campaign: Mailed, total: int) -> Recorded:
        """Have the pages count, all in one step. On return it is on the disk.

        Raise Temporary if they do not hold `total` different people; they are dropped then, and the record is as it was.
        """
        ...

    def drop(self, campaign: Mailed) -> None:
        """Drop the pages of a report that turned out to be none."""
        ...


class RecipientRecord(Protocol):
    """Who got the campaigns of a job. Only reports that are complete count.

    Raises StateUnusable if it cannot be read or written, StoreDown if its server cannot be reached.
    """

    def writing(self) -> AbstractContextManager[RecipientWriter]:
        """Write reports. Raise LeaseBusy if another process does so."""
        ...

    def campaigns(self, first: str, last: str) -> tuple[Recorded, ...]:
        """The campaigns on record of the dates from `first` to `last` (YYYY-MM-DD), in the order of dates."""
        ...

    def got(self, email_id: bytes) -> tuple[Got, ...]:
        """All that a person got, in the order of dates, whether they were forgotten or not."""
        ...

    def duplicates(self, first: str, last: str) -> Iterator[Duplicate]:
        """Who got more than one campaign of the same date; read as they are asked for."""
        ...

    def rows(self, date: str) -> Iterator[Row]:
        """Every recipient of a date's campaigns; read as they are asked for."""
        ...

    def count(self, date: str) -> int:
        """How many different people got any campaign of a date."""
        ...

    def addresses_of(self, date: str, limit: int) -> Iterator[str]:
        """So many of the addresses kept of a date at the most; none where addresses are not kept."""
        ...

    def forget(self, email_id: bytes) -> int:
        """Put a tombstone in a person's place, now and in every report to come; how many rows it were.

        Raise LeaseBusy while another process writes reports.
        """
        ...


class CampaignSource(Protocol):
    """`replicate` and `html`: what the day's campaign shall be."""

    def spec(self) -> Spec:
        """Today's settings and content. Raise Refused if a person must mend the file or the source campaign."""
        ...


class Clock(Protocol):
    """This machine's time; decides nothing in the protocol but how long to wait."""

    def now(self) -> datetime:
        """The wall clock, UTC. For `attempts` and for people."""
        ...

    def monotonic(self) -> float:
        """Seconds that only go forward."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait; may be cut short by Interrupted."""
        ...


class Witness(Protocol):
    """Where a run says what it is doing: the log, and `-v`."""

    def note(self, event: str, **facts: object) -> None:
        """One event, in words; facts never hold a secret. Never raises."""
        ...

    def warn(self, message: str) -> None:
        """Something a person should know though the run goes on. Never raises."""
        ...
