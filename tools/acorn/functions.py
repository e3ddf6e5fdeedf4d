"""The functions that acorn learns to call: data only.

A concept is one thing to ask for. Its functions go by several names and its parameters too, so that the name
to use must be read from the declaration in the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tools.acorn.draws import words

Value = int | str


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument: the names that it may be declared under, what is said of it, and the values it takes."""

    names: tuple[str, ...]
    about: str
    pool: Sequence[Value]

    @property
    def kind(self) -> str:
        return "integer" if isinstance(self.pool, range) else "string"


@dataclass(frozen=True, slots=True)
class Concept:
    """One thing to ask for; `queries` name its parameters by their place: {0}, {1}, {2}.

    `extra` is an optional parameter that no query mentions: the call must leave it out.
    """

    names: tuple[str, ...]
    about: tuple[str, ...]
    queries: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    extra: Parameter | None = None


CITIES = words(
    "Paris London Berlin Rome Madrid Vienna Oslo Lisbon Athens Prague Dublin Warsaw Cairo Tokyo Boston Lima"
)
COUNTRIES = words("France Spain Italy Norway Greece Poland Egypt Japan Peru Canada Brazil India")
CURRENCIES = ("USD", "EUR", "GBP", "JPY", "CHF", "INR")
LANGUAGES = words("French German Spanish Italian Polish Greek Japanese Latin")
PEOPLE = words("Anna Ben Clara David Emil Felix Greta Hugo Ida Jonas Lena Max Nina Paul Rosa Tom")
DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
COLORS = words("red green blue yellow white black orange purple")
DISHES = words("soup pizza salad rice pasta bread cake curry")
WORDS = words("house river garden window music winter letter bridge table mountain")
UNITS = ("meters", "inches", "feet", "miles", "yards")

UNIT = Parameter(("unit", "measure"), "The unit of the result.", UNITS)
LENGTH = range(2, 100)

CONCEPTS = (
    Concept(
        ("calculate_triangle_area", "triangle_area", "area_of_triangle"),
        ("Calculate the area of a triangle given its base and height.", "Area of a triangle."),
        (
            "Find the area of a triangle with a base of {0} and a height of {1}.",
            "What is the area of a triangle that has height {1} and base {0}?",
        ),
        (
            Parameter(("base", "width"), "The base of the triangle.", LENGTH),
            Parameter(("height", "altitude"), "The height of the triangle.", LENGTH),
        ),
        UNIT,
    ),
    Concept(
        ("rectangle_area", "calculate_area", "area_of_rectangle"),
        ("Calculate the area of a rectangle.", "Area of a rectangle from its sides."),
        (
            "What is the area of a rectangle of length {0} and width {1}?",
            "A rectangle is {1} wide and {0} long. Find its area.",
        ),
        (
            Parameter(("length", "long_side"), "The length of the rectangle.", LENGTH),
            Parameter(("width", "short_side"), "The width of the rectangle.", LENGTH),
        ),
        UNIT,
    ),
    Concept(
        ("circle_area", "geometry.circle", "area_of_circle"),
        ("Calculate the area of a circle with a given radius.", "Area of a circle."),
        ("Find the area of a circle with a radius of {0}.", "A circle has radius {0}. What is its area?"),
        (Parameter(("radius", "r"), "The radius of the circle.", LENGTH),),
        UNIT,
    ),
    Concept(
        ("factorial", "math.factorial", "compute_factorial"),
        ("Calculate the factorial of a number.", "Factorial of a whole number."),
        ("What is the factorial of {0}?", "Calculate {0} factorial."),
        (Parameter(("number", "n"), "The number.", range(2, 60)),),
    ),
    Concept(
        ("math.gcd", "greatest_common_divisor", "find_gcd"),
        ("Find the greatest common divisor of two numbers.", "Greatest common divisor."),
        (
            "Find the greatest common divisor of {0} and {1}.",
            "What is the largest number that divides both {0} and {1}?",
        ),
        (
            Parameter(("a", "first", "num1"), "The first number.", LENGTH),
            Parameter(("b", "second", "num2"), "The second number.", LENGTH),
        ),
    ),
    Concept(
        ("power", "math.power", "raise_number"),
        ("Raise a number to a power.", "A base to an exponent."),
        ("Raise {0} to the power of {1}.", "What is {0} to the power {1}?"),
        (
            Parameter(("base", "number"), "The number to raise.", range(2, 30)),
            Parameter(("exponent", "power"), "The power to raise it to.", range(2, 10)),
        ),
    ),
    Concept(
        ("random_number", "get_random", "random.integer"),
        ("Draw a random number between two limits.", "A random number from a range."),
        ("Give me a random number between {0} and {1}.", "Draw a random number from {0} to {1}."),
        (
            Parameter(("low", "minimum", "start"), "The smallest number.", range(1, 40)),
            Parameter(("high", "maximum", "end"), "The largest number.", range(41, 100)),
        ),
    ),
    Concept(
        ("get_weather", "weather.forecast", "weather_lookup"),
        ("Get the weather of a city.", "Weather for some days in a city."),
        (
            "What will the weather in {0} be for the next {1} days?",
            "Give me the weather for {1} days in {0}.",
        ),
        (
            Parameter(("city", "location", "place"), "The name of the city.", CITIES),
            Parameter(("days", "num_days"), "The number of days.", range(2, 15)),
        ),
        Parameter(("unit", "scale"), "The unit of temperature.", ("celsius", "fahrenheit")),
    ),
    Concept(
        ("convert_currency", "currency.exchange", "exchange_money"),
        ("Convert money from one currency to another.", "Exchange money."),
        ("Convert {0} {1} to {2}.", "How much is {0} {1} in {2}?"),
        (
            Parameter(("amount", "money"), "The amount to convert.", range(2, 100)),
            Parameter(("from_currency", "source"), "The currency to convert from.", CURRENCIES),
            Parameter(("to_currency", "target"), "The currency to convert to.", CURRENCIES),
        ),
    ),
    Concept(
        ("translate", "translate_word", "language.translate"),
        ("Translate a word to another language.", "Translation of a word."),
        ("Translate the word {0} to {1}.", "What is {0} in {1}?"),
        (
            Parameter(("word", "text"), "The word to translate.", WORDS),
            Parameter(("language", "to"), "The language to translate to.", LANGUAGES),
        ),
    ),
    Concept(
        ("book_flight", "flights.book", "reserve_flight"),
        ("Book a flight between two cities.", "Reserve seats on a flight."),
        ("Book a flight from {0} to {1} for {2} people.", "I need a flight to {1} from {0} for {2} people."),
        (
            Parameter(("origin", "departure", "start"), "The city to leave from.", CITIES),
            Parameter(("destination", "arrival", "goal"), "The city to fly to.", CITIES),
            Parameter(("passengers", "people"), "The number of people.", range(2, 10)),
        ),
    ),
    Concept(
        ("get_distance", "maps.distance", "distance_between"),
        ("Get the distance between two cities.", "Distance from one city to another."),
        ("How far is it from {0} to {1}?", "What is the distance between {0} and {1}?"),
        (
            Parameter(("origin", "start", "from_city"), "The city to start from.", CITIES),
            Parameter(("destination", "end", "to_city"), "The city to go to.", CITIES),
        ),
        UNIT,
    ),
    Concept(
        ("book_table", "restaurant.reserve", "reserve_table"),
        ("Book a table at a restaurant.", "Reserve a table."),
        ("Book a table for {0} people on {1}.", "Please reserve a table on {1} for {0} guests."),
        (
            Parameter(("guests", "people"), "The number of guests.", range(2, 20)),
            Parameter(("day", "weekday"), "The day of the week.", DAYS),
        ),
    ),
    Concept(
        ("set_timer", "timer.start", "start_timer"),
        ("Set a timer for some minutes.", "Start a timer."),
        ("Set a timer for {0} minutes.", "Wake me up in {0} minutes."),
        (Parameter(("minutes", "duration"), "The time in minutes.", LENGTH),),
    ),
    Concept(
        ("send_message", "messages.send", "send_text"),
        ("Send a message to a person.", "Send a short text to someone."),
        ("Send the message {1} to {0}.", "Tell {0} this: {1}."),
        (
            Parameter(("recipient", "to", "person"), "The person to send it to.", PEOPLE),
            Parameter(
                ("message", "text"),
                "The text of the message.",
                ("hello", "good morning", "see you soon", "thank you", "happy birthday", "I am late"),
            ),
        ),
    ),
    Concept(
        ("add_reminder", "calendar.add", "create_event"),
        ("Add a meeting to the calendar.", "Create a meeting with a person."),
        (
            "Add a meeting with {0} on {1} at {2} o'clock.",
            "On {1} at {2} o'clock I meet {0}. Put it in my calendar.",
        ),
        (
            Parameter(("person", "name", "guest"), "The person to meet.", PEOPLE),
            Parameter(("day", "weekday"), "The day of the week.", DAYS),
            Parameter(("hour", "time"), "The hour of the day.", range(6, 22)),
        ),
    ),
    Concept(
        ("order_food", "orders.create", "place_order"),
        ("Order a dish for delivery.", "Place an order of food."),
        ("Order {0} plates of {1}.", "I would like {0} portions of {1}."),
        (
            Parameter(("quantity", "count"), "The number of plates.", range(2, 20)),
            Parameter(("dish", "item", "food"), "The dish to order.", DISHES),
        ),
    ),
    Concept(
        ("set_light", "lights.set", "change_light"),
        ("Set the color and strength of a lamp.", "Change a lamp."),
        ("Set the lamp to {0} at {1} percent.", "Make the light {0} with a strength of {1} percent."),
        (
            Parameter(("color", "hue"), "The color of the light.", COLORS),
            Parameter(
                ("brightness", "level", "strength"), "The strength of the light in percent.", range(5, 100)
            ),
        ),
    ),
    Concept(
        ("get_capital", "geography.capital", "capital_of"),
        ("Get the capital of a country.", "Capital city of a country."),
        ("What is the capital of {0}?", "Name the capital city of {0}."),
        (Parameter(("country", "nation"), "The name of the country.", COUNTRIES),),
    ),
    Concept(
        ("run_speed", "physics.speed", "calculate_speed"),
        ("Calculate the speed from distance and time.", "Speed of something that moves."),
        (
            "A car drives {0} miles in {1} hours. What is its speed?",
            "In {1} hours a train goes {0} miles. How fast is it?",
        ),
        (
            Parameter(("distance", "miles"), "The distance in miles.", range(10, 100)),
            Parameter(("time", "hours"), "The time in hours.", range(2, 10)),
        ),
    ),
)
