"""Every transition out of a state: the runs, Mailchimp's late effects, faults, and people."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from explorer.real import Call, Driver, Ended, Fails, Shown, canonical, id_of, index_of, is_settled_state
from explorer.world import BLANK, CONTENT, KEY, LONG_AGO, NOW, Budget, Camp, Proc, World, put, with_camp
from sendonce.core.campaigns import Accepted, Content, No, NotSent, Unclear
from sendonce.core.dates import belongs
from sendonce.core.errors import ClaimLost, NoAnswer, Refused
from sendonce.core.model import Batch, Page, State

if TYPE_CHECKING:
    from collections.abc import Iterator

NO = NotSent(No.THROTTLED, "429.")
UNCLEAR = Unclear("no answer.")
OTHER_TITLE = "something else"


class Step(NamedTuple):
    """A transition. `kind`: start, run, end, env, fault or human."""

    kind: str
    label: str
    world: World


def name(index: int) -> str:
    """A run's name in a trace."""
    return "AB"[index]


class Rulebook:
    """What can happen next, within a budget."""

    def __init__(self, budget: Budget, driver: Driver, *, compares: bool = True) -> None:
        self.budget, self.driver, self._compares = budget, driver, compares

    def steps(self, world: World) -> Iterator[Step]:
        """All transitions out of `world`."""
        for index in range(len(world.procs)):
            yield from self.run_steps(world, index)
        yield from self.env_steps(world)
        if world.faults:
            yield from self._crashes(world)
            yield from self._restores(world)
        if world.human:
            yield from self._people(world)

    def may(self, world: World, *kinds: str) -> bool:
        """Whether so many faults of these kinds are still allowed."""
        return world.faults >= len(kinds) and self.budget.kinds.issuperset(kinds)

    # ------------------------------------------------------------------------------------------------ runs

    def run_steps(self, world: World, index: int) -> Iterator[Step]:
        """What one run does next, with every answer it can get."""
        proc, folder = world.procs[index], self.budget.folders[index]
        match proc.pc:
            case "off":
                may_start = world.started < self.budget.runs and (index == 0 or world.started > 0)
                if may_start and not is_settled_state(world.ledgers[folder][0]):
                    number = world.started + 1
                    started = world._replace(started=number)
                    yield Step(
                        "start", f"{name(index)} starts", self._with(started, index, Proc("lease", number))
                    )
            case "lease":
                yield from self._acquires(world, index, folder)
            case _:
                asked = self.driver.next(proc.number, proc.history)
                if isinstance(asked, Ended):
                    said = f"{name(index)} ends: {asked.ending}. {asked.message}"
                    yield Step("end", said, self._gone(world, index))
                else:
                    yield from self._answers(world, index, asked)

    def _acquires(self, world: World, index: int, folder: int) -> Iterator[Step]:
        proc = world.procs[index]._replace(pc="run")
        held = world.leases[folder]
        taken = self._with(world._replace(leases=put(world.leases, folder, index)), index, proc)
        if held == -1:
            yield Step("run", f"{name(index)} takes the lease", taken)
        elif held != index and self.may(world, "freeze"):
            said = f"{name(index)} takes over the lease of frozen {name(held)}"
            yield Step("fault", said, taken._replace(faults=world.faults - 1))

    def _answers(self, world: World, index: int, call: Call) -> Iterator[Step]:
        """Each answer that `call` can get, and what the world is after it."""
        who, folder = name(index), self.budget.folders[index]

        def go(after: World, said: str, answer: object, cost: int = 0) -> Step:
            proc = after.procs[index]
            known = proc._replace(
                history=(*proc.history, answer), is_unclear=proc.is_unclear or answer is UNCLEAR
            )
            return Step(
                "fault" if cost else "run",
                f"{who} {said}",
                self._with(after._replace(faults=after.faults - cost), index, known),
            )

        match call.what:
            case "load":
                yield go(
                    world, f"reads the ledger: {_told(world.ledgers[folder][0])}", self._page(world, folder)
                )
            case "save" | "check":
                if not self._is_current(world, index, call):
                    yield go(world, f"{call.what}: claim lost or ledger changed", Fails(ClaimLost))
                elif call.what == "check":
                    yield go(world, "checks claim and ledger", None)
                else:
                    yield go(self._stored(world, folder, call.about), f"writes {_told(call.about)}", None)
            case "listing":
                yield go(world, "lists the campaigns", self._listing(world))
            case "campaign":
                yield go(world, f"reads campaign {call.about}", self._shown(world, call.about))
            case "content":
                camp = world.camps[_index(call.about)]
                yield go(world, "reads the content", CONTENT if camp.has_content else Content())
            case "write_settings" | "write_content":
                yield from self._writes(world, call, go)
            case "create":
                yield from self._creates(world, str(call.about), go)
            case "send":
                proc = world.procs[index]
                posted = proc._replace(posted=(*proc.posted, _index(call.about)))
                yield from self._sends(self._with(world, index, posted), _index(call.about), go)
            case "sleep":
                if self._may_wake(world, index, str(call.about)):
                    yield go(world, f"has waited ({call.about})", None)
            case _:
                raise NotImplementedError(call.what)

    def _writes(self, world: World, call: Call, go: _Go) -> Iterator[Step]:
        index = _index(call.about)
        camp = world.camps[index]
        if camp.status != "save":
            yield go(world, f"may not write to campaign {index}", Fails(Refused, "400."))
            return
        if call.what == "write_settings":
            yield go(
                with_camp(world, index, camp._replace(has_settings=True)), f"writes settings of {index}", None
            )
        else:
            yield go(
                with_camp(world, index, camp._replace(has_content=True)), f"writes content of {index}", None
            )

    def _creates(self, world: World, title: str, go: _Go) -> Iterator[Step]:
        number = len(world.camps)
        made = create(world, title, is_listed=True)
        yield go(made, f"creates campaign {number}", _campaign(made, number))
        if self.may(world, "listlag"):
            unlisted = create(world, title, is_listed=False)
            yield go(unlisted, f"creates campaign {number}, not listed yet", _campaign(unlisted, number), 1)
        if self.may(world, "lost"):
            yield go(made, f"creates campaign {number}, answer lost", Fails(NoAnswer), 1)
        if self.may(world, "late"):
            late = fly(world, ("create", 0, title))
            yield go(late, "asks to create, no answer, effect later", Fails(NoAnswer), 1)

    def _sends(self, world: World, index: int, go: _Go) -> Iterator[Step]:
        camp, post = world.camps[index], f"POSTs send of campaign {index}"
        if camp.status != "save":
            yield go(world, f"{post}: refused", NotSent(No.REFUSED, "400."))
            return
        mailed = mail(world, index)
        yield go(mailed, f"{post}: 204", Accepted())
        if self.may(world, "statlag"):
            yield go(mail(world, index, is_stale=True), f"{post}: 204, reads lag", Accepted(), 1)
        if self.may(world, "lost"):
            yield go(mailed, f"{post}: accepted, answer lost", UNCLEAR, 1)
            yield go(world, f"{post}: no effect, answer lost", UNCLEAR, 1)
        if self.may(world, "lost", "statlag"):
            yield go(
                mail(world, index, is_stale=True), f"{post}: accepted, answer lost, reads lag", UNCLEAR, 2
            )
        if self.may(world, "late"):
            yield go(fly(world, ("send", index, "")), f"{post}: no answer, effect later", UNCLEAR, 1)
        if self.may(world, "no"):
            yield go(world, f"{post}: 429", NO, 1)

    # ------------------------------------------------------------------------------------- what a port shows

    def _page(self, world: World, folder: int) -> Page:
        batch, forgotten = world.ledgers[folder]
        shown = tuple(self._dated(world, b) for b in forgotten)
        return Page((batch, forgotten), self._dated(world, batch), shown)

    def _dated(self, world: World, batch: Batch) -> Batch:
        """The record with its times: long ago if the send is settled, this moment if it is not."""
        entries = []
        for entry in batch.campaigns:
            at = LONG_AGO if self.is_settled(world, index_of(entry.id)) else NOW
            entries.append(
                entry._replace(
                    requested_at=at if entry.requested_at else None,
                    gave_up_at=at if entry.gave_up_at else None,
                    sent_at=at if entry.sent_at else None,
                    scheduled_for=at if entry.scheduled_for else None,
                )
            )
        return batch._replace(campaigns=tuple(entries))

    def _listing(self, world: World) -> tuple[tuple[Shown, ...], int | None]:
        """What is listed; and the draft that would be elected, if it is not old enough yet."""
        shown = tuple(
            _campaign(world, i) for i, c in enumerate(world.camps) if c.is_listed and c.status != "gone"
        )
        return shown, self._unripe(world)

    def _unripe(self, world: World) -> int | None:
        drafts = [
            i
            for i, c in enumerate(world.camps)
            if c.status == "save" and belongs(c.title, KEY) and (c.is_listed or self._is_known(world, i))
        ]
        if drafts and not self.is_ripe(world, drafts[0]):
            return drafts[0]
        return None

    def _is_known(self, world: World, index: int) -> bool:
        """Whether a ledger has its id, so that it is read although no listing shows it."""
        return any(e.id == id_of(index) for batch, _ in world.ledgers for e in batch.campaigns)

    def is_ripe(self, world: World, index: int) -> bool:
        """Whether every campaign that was made before this one is listed by now."""
        return all(
            world.camps[i].is_listed or world.camps[i].status == "gone" for i in world.camps[index].older
        )

    def is_settled(self, world: World, index: int) -> bool:
        """Whether no send of the campaign can take effect any more and reads show what is."""
        if self.budget.late_without_bound:
            return True
        under_way = any(what == "send" and i == index for what, i, _ in world.flight)
        return not under_way and not (index < len(world.camps) and world.camps[index].is_stale)

    def _shown(self, world: World, about: object) -> Shown | None:
        index = _index(about)
        return None if world.camps[index].status == "gone" else _campaign(world, index)

    def _may_wake(self, world: World, index: int, why: str) -> bool:
        if why == "listing":
            return self._unripe(world) is None
        return all(self.is_settled(world, i) for i in world.procs[index].posted)

    def _is_current(self, world: World, index: int, call: Call) -> bool:
        folder = self.budget.folders[index]
        if not self._compares and call.what == "save":
            return True
        return world.leases[folder] == index and world.ledgers[folder] == call.stamp

    # ------------------------------------------------------------------------------------- what changes it

    def _with(self, world: World, index: int, proc: Proc) -> World:
        return world._replace(procs=(proc, world.procs[1]) if index == 0 else (world.procs[0], proc))

    def _gone(self, world: World, index: int) -> World:
        folder = self.budget.folders[index]
        leases = put(world.leases, folder, -1) if world.leases[folder] == index else world.leases
        return self._with(world._replace(leases=leases), index, Proc())

    def _stored(self, world: World, folder: int, about: object) -> World:
        if not isinstance(about, Batch):
            raise NotImplementedError
        now = (about, world.ledgers[folder][1])
        past = world.pasts[folder] | {world.ledgers[folder]}
        return world._replace(ledgers=put(world.ledgers, folder, now), pasts=put(world.pasts, folder, past))

    def env_steps(self, world: World) -> Iterator[Step]:
        """Late effects, and lags that end."""
        for n, (what, index, title) in enumerate(world.flight):
            if n and world.flight[n - 1] == world.flight[n]:
                continue
            left = world._replace(flight=world.flight[:n] + world.flight[n + 1 :])
            if what == "create":
                said = f"a late create takes effect: campaign {len(world.camps)}"
                yield Step("env", said, create(left, title, is_listed=True))
            elif world.camps[index].status == "save":
                yield Step("env", f"a late send of campaign {index} takes effect", mail(left, index))
            else:
                yield Step("env", f"a late send of campaign {index} comes to nothing", left)
        for i, camp in enumerate(world.camps):
            if camp.is_stale:
                yield Step(
                    "env",
                    f"reads show campaign {i} as it is",
                    with_camp(world, i, camp._replace(is_stale=False)),
                )
            if not camp.is_listed and camp.status != "gone":
                yield Step(
                    "env", f"listings show campaign {i}", with_camp(world, i, camp._replace(is_listed=True))
                )
            if camp.status == "schedule":
                yield Step("env", f"scheduled campaign {i} goes out", mail(world, i))

    def _crashes(self, world: World) -> Iterator[Step]:
        if self.may(world, "crash"):
            less = world._replace(faults=world.faults - 1)
            for index, proc in enumerate(world.procs):
                if proc.pc == "run":
                    yield Step("fault", f"{name(index)} crashes", self._gone(less, index))

    def _restores(self, world: World) -> Iterator[Step]:
        if not self.may(world, "restore"):
            return
        less = world._replace(faults=world.faults - 1)
        for folder, ledger in enumerate(world.ledgers):
            if world.leases[folder] == -1:
                for old in sorted(world.pasts[folder] | {(BLANK, ())}, key=repr):
                    if old != ledger:
                        said = f"ledger {folder} is restored to {_told(old[0])}"
                        yield Step("fault", said, less._replace(ledgers=put(world.ledgers, folder, old)))

    def _people(self, world: World) -> Iterator[Step]:
        less = world._replace(human=world.human - 1)
        acts = self.budget.acts

        def change(index: int, **what: object) -> World:
            return with_camp(less, index, world.camps[index]._replace(**what))  # type: ignore[arg-type]

        of_day = [i for i, c in enumerate(world.camps) if belongs(c.title, KEY) and c.status != "gone"]
        for i in of_day:
            camp = world.camps[i]
            # a careful person, who does not send one of two twins: no tool can prevent that (design, end of §3)
            is_alone = len(of_day) == 1
            if camp.status == "save" and not camp.is_stale:
                if "send" in acts and is_alone and camp.has_content:
                    yield Step("human", f"a person sends campaign {i}", mail(less, i))
                if "schedule" in acts and is_alone and camp.has_content:
                    yield Step("human", f"a person schedules campaign {i}", change(i, status="schedule"))
                if "delete" in acts:
                    yield Step("human", f"a person deletes campaign {i}", change(i, status="gone"))
                if "rename" in acts:
                    yield Step("human", f"a person renames campaign {i}", change(i, title=OTHER_TITLE))
            if camp.status == "schedule" and "schedule" in acts:
                yield Step("human", f"a person unschedules campaign {i}", change(i, status="save"))
        if "new" in acts and not of_day and world.camps:
            made = create(less, KEY, is_listed=True)
            last = made.camps[-1]._replace(has_content=True)
            yield Step(
                "human",
                "a person makes a campaign of the name",
                made._replace(camps=(*made.camps[:-1], last)),
            )
        for folder, (batch, forgotten) in enumerate(world.ledgers):
            is_free = world.leases[folder] == -1
            if "reset" in acts and is_free and batch.state not in {State.NONE, State.SENT}:
                reset = (BLANK, (*forgotten, canonical(batch)))
                yield Step(
                    "human",
                    f"ledger {folder} is reset",
                    less._replace(ledgers=put(world.ledgers, folder, reset)),
                )
            if "break" in acts and not is_free:
                yield Step(
                    "human", f"lock {folder} is broken", less._replace(leases=put(world.leases, folder, -1))
                )


class _Go(Protocol):
    """The shape of `go` above."""

    def __call__(self, after: World, said: str, answer: object, cost: int = 0, /) -> Step: ...


def create(world: World, title: str, *, is_listed: bool) -> World:
    """A campaign more. It remembers which earlier ones no listing shows yet."""
    older = tuple(i for i, c in enumerate(world.camps) if not c.is_listed and c.status != "gone")
    camp = Camp(title, has_settings=True, has_content=False, is_listed=is_listed, older=older)
    return world._replace(camps=(*world.camps, camp))


def mail(world: World, index: int, *, is_stale: bool = False) -> World:
    """Mailchimp mails a campaign: at most once (facts §2), and everybody at once here."""
    camp = world.camps[index]
    return with_camp(world, index, camp._replace(status="sent", is_stale=is_stale, mails=camp.mails + 1))


def fly(world: World, request: tuple[str, int, str]) -> World:
    """A request whose client has given up, and whose effect is still to come."""
    return world._replace(flight=tuple(sorted((*world.flight, request))))


def shown_status(camp: Camp) -> str:
    """What a read says."""
    return "save" if camp.is_stale else camp.status


def _campaign(world: World, index: int) -> Shown:
    camp = world.camps[index]
    return Shown(index, camp.title, shown_status(camp), camp.has_settings)


def _index(about: object) -> int:
    if not isinstance(about, int):
        raise NotImplementedError(about)
    return about


def _told(batch: object) -> str:
    if not isinstance(batch, Batch):
        raise NotImplementedError
    main = batch.main
    return (
        batch.state.value
        + (f" campaign {index_of(main.id)}" if main else "")
        + (" + nonce" if batch.nonce else "")
    )
