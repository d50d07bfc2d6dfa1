"""Every interleaving of real runs against an abstract Mailchimp, breadth first."""
