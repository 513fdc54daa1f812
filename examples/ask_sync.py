"""Ask a question and for a permission, without asyncio. Needs a desk that runs: handraise serve"""

from handraise import Option, Permission, Rejected
from handraise.sync import Desk

with Desk() as desk:
    database = desk.ask(
        "Which database should the shop use?",
        Option("SQLite", description="one file, no server"),
        Option("PostgreSQL", description="shared, needs a server", recommended=True),
        header="Database",
    )
    print(f"{database.by} chose {database.value}")

    try:
        desk.ask(Permission(tool="Bash", summary="Make the tables", command=f"make migrate DB={database.value}"))
    except Rejected as no:
        print(f"not migrating: {no.answer.reason}")
    else:
        print("migrating")
