"""A workflow that needs no agent to be installed: `scripted` repeats what it is told, or plays what a test says.

Copy it to .handraise/workflows/ and: handraise run hello --input name=Ana
Or play it here, with a scripted agent that asks and a scripted person: python examples/hello.py
"""

import asyncio

from pydantic import BaseModel

from handraise import Option, Question
from handraise.testing import Scripted, ScriptedPerson, run_workflow
from handraise.workflow import Workflow, agent, checkpoint, shell
from handraise.workflow.trace import line


class Who(BaseModel):
    name: str


hello = Workflow(
    "hello",
    agent("greet", "Hello, {input.name}!", agent="scripted", question_policy="forward"),
    checkpoint("send", input="Say this? {greet}"),
    shell("say", "test {send} = true && echo {greet}"),
    input=Who,
    description="Greets somebody, if you agree",
)


async def main() -> None:
    language = Question("In which language?", (Option("English"), Option("Italian")), header="Language")
    greetings = {"English": "Hello, Ana!", "Italian": "Ciao, Ana!"}
    greeter = Scripted().on_question("Hello", language).on("Hello", lambda answers: greetings[answers[0].value or ""])
    person = ScriptedPerson(by="ana").on("Language", [["Italian"]]).on_checkpoint("send", True)
    run = await run_workflow(hello, {"name": "Ana"}, agents=greeter, person=person)
    for event in run.trace:
        print(line(event))
    print(run.output["output"], end="")


if __name__ == "__main__":
    asyncio.run(main())
