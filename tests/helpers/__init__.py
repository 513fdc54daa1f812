"""What several test files share: desks, stand-ins and data. No tests."""
