"""What can go wrong, as one tree. `exits.py` turns each branch into an exit code.

SendonceError                 a sentence for a person: what happened, what state things are in, what to do
├── WrongUsage           2    the command line says something that cannot be meant
├── Refused              1    a human must look; a rerun alone does not cure it
├── Temporary           75    run again, that is safe
│   ├── LeaseBusy             another run holds the lease
│   ├── ClaimLost             the lease or the ledger is no longer what this run knows
│   ├── NoAnswer              Mailchimp could not be reached, or did not answer as the API does
│   ├── StoreDown             the server that keeps lease and ledger could not be reached
│   └── NotRecorded           Mailchimp took the send, the ledger could not be written
├── Unusable            78    configuration, credentials or ledger; nothing was sent by this run
│   ├── SettingsWrong
│   ├── CredentialsRejected
│   ├── StateUnusable         folder, ledger file or lock path that cannot be worked with
│   └── LedgerDamaged
└── InvariantBroken     70    a bug in sendonce

Stopped                 75    a signal; outside the tree, see there
"""


class SendonceError(Exception):
    """A fault with a sentence for the user. `str(error)` is that sentence."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class WrongUsage(SendonceError):
    """The command line is wrong."""


class Refused(SendonceError):
    """A human must look. The message says whether anything left."""


class Temporary(SendonceError):
    """Nothing is wrong for good: the same command, later, goes on safely."""


class LeaseBusy(Temporary):
    """Another run holds the lease and did not finish within the wait."""


class ClaimLost(Temporary):
    """The lease changed hands, or the ledger is not the one this run last read."""


class NoAnswer(Temporary):
    """Mailchimp could not be reached, is throttling, or something else answered in its place."""


class StoreDown(Temporary):
    """The server that keeps lease and ledger could not be reached, or is not ready for work."""


class NotRecorded(Temporary):
    """Mailchimp took the send (or may have), and the ledger could not be written."""


class Unusable(SendonceError):
    """Configuration, credentials or ledger cannot be used. Nothing was sent by this run."""


class SettingsWrong(Unusable):
    """One or more settings are missing or wrong; the message lists all of them, `faults` each by itself."""

    def __init__(self, message: str, faults: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.faults = faults or (message,)


class CredentialsRejected(Unusable):
    """Mailchimp does not accept the key, or its certificate is not valid."""


class StateUnusable(Unusable):
    """The state folder, the ledger file or the lock path cannot be worked with."""


class LedgerDamaged(Unusable):
    """The ledger cannot be read as one. It is left as it is."""


class InvariantBroken(SendonceError):
    """A rule of the protocol does not hold: a bug in sendonce."""


class Stopped(BaseException):
    """A signal asks this run to end.

    No Exception, so that it passes through every `except Exception` between the signal and the protocol:
    the official client has one around each request, which would turn a SIGTERM into a network fault.
    """

    def __init__(self, signal_name: str) -> None:
        super().__init__(signal_name)
        self.signal_name = signal_name
