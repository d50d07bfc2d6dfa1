"""sendonce: sends the day's Mailchimp campaign from cron, and sends it once."""

__version__ = "0.1.0"
