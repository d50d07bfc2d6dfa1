"""Mailchimp's API. `wire` makes one request and says what came of it; `api` says what that means."""
