"""What a query selects, as conditions of SQL with bound arguments."""
