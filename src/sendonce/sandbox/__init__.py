"""A local stand-in for Mailchimp's Marketing API 3.0: to try things on, and what the tests talk to.

It speaks real HTTP on 127.0.0.1, keeps everything in memory and forgets it when it ends. It mails nobody:
a "delivery" is a line in its mailbox. Beside the API it has a control side under `/sandbox/`, with which
drafts are put in place, faults are ordered and what happened is read.

    messages    a request, a reply, Mailchimp's way of writing times
    problems    an error as the API tells it
    audience    members, segments, and who a campaign goes to
    campaigns   one campaign as it really is
    drafts      what a request says about a draft, checked
    account     everything the account holds, and every operation on it; knows nothing of HTTP
    documents   the JSON shapes the API answers with
    queries     filters, order, pages and fields
    operations  what each operation of the API does
    routes      method and path to operation
    faults      the words for what can go wrong on the wire, and when
    journal     every request that arrived
    mailbox     what was delivered
    control     the `/sandbox/` side
    connection  HTTP and the faults, byte by byte
    server      the listening socket; `serve`
"""
