"""Text that people read: made safe to show, secrets masked, the product's words. Nothing here knows what an ask is."""
