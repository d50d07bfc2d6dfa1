"""Lease and ledger where several servers see them: one protocol (`lease`, `ledger`) over two kinds of server.

`backend` is what a server must be able to do in one step each; `redis` and `sql` do it.
"""
