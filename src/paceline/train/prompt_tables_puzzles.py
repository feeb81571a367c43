"""Reasoning puzzles, questions of mathematics, and records to extract facts from."""

from __future__ import annotations

from paceline.train.prompt_grammar import entries

NAME = entries("""Anna | Ben | Clara | David | Elena | Farid | Greta | Hugo | Ines | Jonas | Kira | Liam |
Mara | Nils | Olga | Pedro | Rosa | Samir | Tara | Uwe | Vera | Walid | Yuki | Zoe | Aisha | Bruno |
Carmen | Dmitri | Emeka | Fiona | Gustav | Hana | Ivan | Julia | Kofi | Leila | Mateo | Nora | Omar |
Priya | Quentin | Ravi | Sofia | Tomás | Wei""")
FRUIT = entries(
    "apples | pears | oranges | plums | marbles | coins | stamps | books | pencils | eggs | candles | cards"
)
COLOUR = entries("red | blue | green | yellow | white | black | purple | orange | grey | brown")
ANIMAL = entries("cat | dog | rabbit | parrot | horse | goat | turtle | hen | hamster | fish")
DRINK = entries("tea | coffee | water | lemonade | milk | cocoa")
SPORT = entries(
    "tennis | football | chess | swimming | judo | cycling | climbing | hockey | rowing | fencing"
)
KIND = entries(
    "bloops | razzies | lazzies | wugs | zorks | flims | dax | toms | glips | mirps | snarks | plonks"
)
SEAT = entries("a round table | a bench | a row of chairs | the steps of a stage | a tram")
PLACE_TAKEN = entries("third | fourth | fifth | sixth | seventh | eighth | ninth")
TONGUE = entries("Spanish | French | German | Italian | Turkish | Arabic | Polish | Russian | Greek | Hindi")
DAY = entries("Monday | Tuesday | Wednesday | Thursday | Friday | Saturday | Sunday")
ODD = entries("""rose, tulip, oak, daisy | car, bus, bridge, train | seven, nine, eleven, thirteen |
copper, iron, wood, silver | guitar, drum, violin, cello | Paris, Rome, Madrid, Munich | whale, shark,
dolphin, seal | kilogram, metre, gram, tonne | cube, sphere, circle, pyramid | novel, poem, painting,
essay | tomato, carrot, potato, beetroot | Venus, Mars, Moon, Jupiter | Python, Java, HTML, Rust |
January, March, April, July | lake, river, island, pond""")
PAIR = entries("""finger is to hand as leaf is to | author is to book as composer is to | hungry is to eat
as tired is to | bird is to nest as bee is to | clock is to time as thermometer is to | teacher is to
school as doctor is to | wheel is to car as wing is to | key is to lock as password is to | seed is to
plant as egg is to | captain is to ship as pilot is to | glove is to hand as sock is to | library is to
books as museum is to""")
CLAIM = entries("""people who drink {drink} live longer | students who play {sport} get better marks |
towns with more storks have more babies | the more firefighters come to a fire, the greater the damage |
our sales rose after we painted the shop {colour} | nobody I know has ever broken a leg, so {sport} is
safe | all the good films are old films | this coin showed heads {4..9} times, so tails is due | my
grandfather smoked and lived to {85..101}""")
SITUATION = entries("""a man pushes his car to a hotel and loses all his money | {name} turns off the
light and goes to bed in the morning | a woman takes the stairs down but the lift up | the street is dry
although it rained all night | {name} buys {drink} every {day} but never drinks it | two people play
{sport} and both win | a shop sells only left shoes | a letter arrives {20..60} years after it was sent |
{name} waters the garden while it rains""")

REASONING = entries("""{a:name} is taller than {b:name}, and {b} is taller than {c:name}. {d:name} is
shorter than {c}. Who is the second tallest? | {a:name}, {b:name}, {c:name} and {d:name} sit around
{seat}. {a} sits next to {b} but not next to {c}. Where can {d} sit? Explain. | All {x:kind} are {y:kind}.
Some {y} are {z:kind}. Does it follow that some {x} are {z}? | If no {x:kind} are {y:kind} and all
{z:kind} are {y}, can a {z} be one of the {x}? | Which word does not belong: {odd}? Explain why. |
Complete the analogy: {pair} what? | {a:name} says that {b:name} lies. {b} says that {c:name} lies. {c}
says that both {a} and {b} lie. Who tells the truth? | The day after tomorrow is {day}. What day was it
{2..30} days ago? | What is the next number in the sequence {s:2..9}, {1..3}{0..9}, ... if each term is
the previous one plus {3..17}? Start from {s} and give six terms. | Is this argument sound? "{^claim}."
Explain. | What could be the explanation: {situation}? | Three friends, {a:name}, {b:name} and {c:name},
own a {p:animal}, a {q:animal} and a {r:animal}. {a} is allergic to the {p}. {b} owns the {q}. Who owns
which animal? | {a:name} walks {2..9} km north, {2..9} km east and {2..9} km south. How far from the start
is {a}, and in which direction? | {a:name} has {3..9} brothers, and each brother has {1..3} sisters. How
many children are in the family? | A farmer has {7..40} hens. All but {3..6} run away. How many are left?
| {a:name} is {2..9} years older than {b:name}. In {3..12} years {a} will be twice as old as {b} is then.
How old are they now, or is it impossible? | You have a {3..5}-litre jug and a {7..11}-litre jug and
plenty of water. Can you measure exactly {1..2} litres? How? | {a:name} overtakes the runner in
{place_taken} place in a race. Which place is {a} in now? | There are {3..6} boxes; one holds a prize. Box
A says "The prize is not here", box B says "The prize is in A", all others say "The prize is in B". Only
one sign is true. Where is the prize? | A {colour} house, a {colour} house and a {colour} house stand in a
row. {a:name} drinks {drink}, {b:name} drinks {drink} and {c:name} plays {sport}. Invent three clues that
make the puzzle solvable, and solve it. | {a:name} finished before {b:name} but after {c:name}. {d:name}
finished last. Give the order. | If it takes {3..9} machines {3..9} minutes to make {3..9} parts, how long
do {20..90} machines need for {20..90} parts? | Can a {animal} be both heavier than a {animal} and lighter
than the same {animal}? Explain the logic. | A clock shows {1..12}:{15..45}. What will it show in
{50..400} minutes? | If you fold a sheet of paper {2..5} times and cut a hole in the middle, how many
holes does the sheet have? | {a:name} looks at a photo and says: "This man's father is my father's son."
{a} has no brothers. Who is in the photo? | A bus leaves with {8..30} people. At each of {2..4} stops
{1..4} get off and {2..6} get on. What can you say about the number at the end? | You may carry only one
of these into the desert: a {colour} {animal}, {4..12} {fruit}, or {drink}. Which do you choose and why? |
A is the mother of B, B is the sister of C, and C is the father of D. How is A related to D? | You see
{3..8} switches and one lamp in another room. You may enter the room only once. How do you find the right
switch? Discuss for which number of switches this works. | {a:name} must cross a river with a {animal}, a
{animal} and a bag of {fruit}. The boat takes two. Which rules would make it impossible?""")

MATH = entries("""Solve for x: {2..12}x + {3..40} = {50..120}. | Solve the system of equations {2..7}x +
{2..9}y = {20..60} and {2..6}x - {1..5}y = {1..20}. | Find all real solutions of x^2 - {3..15}x + {2..30}
= 0. | If f(x) = {2..6}x^3 - {2..9}x + {1..12}, what is f({2..5})? | What is the remainder when
{3..9}^{10..60} is divided by {5..13}? | How many integers between {1..20} and {80..500} are divisible by
{3..9}? | A rectangle has a perimeter of {24..90} cm, and its length is {2..8} cm more than its width.
What is its area? | What is the area of the triangle with vertices ({0..4}, {0..3}), ({5..9}, {1..6}) and
({-4..2}, {7..12})? | A circle has a radius of {3..15} cm. Find its circumference and its area. | A right
triangle has legs of {3..12} and {5..16}. How long is the hypotenuse? | Two fair dice are thrown. What is
the probability that the sum is at least {4..11}? | A bag holds {3..9} {colour} and {4..11} {colour}
balls. Two are drawn without replacement. What is the probability that both have the same colour? | A fair
coin is tossed {4..10} times. What is the probability of exactly {2..4} heads? | In a class of 30
students, {12..18} speak {tongue}, {8..14} speak {tongue} and {3..7} speak both. How many speak neither? |
Of {200..900} people asked, {20..45}% like {drink}, {15..40}% like {drink}, and {5..14}% like both. What
is the probability that a person likes neither of them? | Prove that the sum of {2..6} consecutive odd
numbers starting from an odd number n can be written as a product. | Find the derivative of {2..7}x^{2..6}
+ {2..9}x^2 - {1..30}. | Compute the integral of {2..8}x^{2..5} from {0..1} to {2..4}. | In how many ways
can {4..9} people be seated in a row if {name} and {name} must sit together? | How many {3..5}-letter
strings can be made from {5..9} different letters without repetition? | The sum of three consecutive
integers is {n:20..70} times 3. Find the integers. | A train travels {120..480} km at {60..140} km/h and
returns at {40..110} km/h. What is its average speed? | {a:name} invests {500..9000} dollars at {2..9}%
compound interest. How much is it worth after {2..10} years? | The price of a coat falls by {10..40}% and
then rises by {10..40}%. Is it cheaper than before? By how many percent? | Find the greatest common
divisor of {48..360} and {60..540}. | Write {20..250} in binary and in hexadecimal. | What is the
{8..30}th term of the arithmetic sequence {2..9}, {10..15}, ...? | The first term of a geometric sequence
is {2..6} and the ratio is {2..4}. What is the sum of the first {4..9} terms? | A cone has radius {2..9}
and height {4..15}. Find its volume. | The angles of a triangle are in the ratio {1..3}:{2..4}:{3..5}.
Find them. | Let x + 1/x = {3..9}. What is x^2 + 1/x^2? | If log base {2..5} of x is {2..6}, what is x? |
{a:name} paints a fence in {3..9} hours, {b:name} in {4..12} hours. How long do they need together? |
{a:name} bought {3..14} {fruit} for {2..9} dollars each and sold them for {10..15} dollars each. What is
the profit? | How many litres of a {10..30}% solution must be mixed with {2..9} litres of a {40..80}%
solution to get a {32..39}% solution? | Find the slope and the intercept of the line through ({0..4},
{1..8}) and ({5..11}, {2..20}). | What is the distance from the point ({1..9}, {1..9}) to the line {2..5}x
+ {1..6}y = {3..20}? | Simplify ({2..9}a^2b^{2..5})({3..8}ab^{2..4}). | Expand ({2..6}x + {1..9})^3. |
What are the last two digits of {7..19}^{20..80}? | Find the mean, the median and the mode of {1..9},
{3..9}, {2..9}, {5..9}, {1..9}, {4..9}. | How many diagonals does a polygon with {7..30} sides have? | Is
{101..997} a prime number? Show how you check it. | Solve the inequality abs({2..5}x - {1..9}) < {10..25}.
| A ladder of {4..9} metres leans against a wall, its foot {2..3} metres away. How high does it reach? | A
test for a disease is {90..99}% accurate, and {1..5}% of people are ill. {a:name} tests positive. How
likely is it that {a} is ill? | A box of {fruit} is shared among {3..8} children; each gets {4..15} and
{1..2} remain. How many were in the box? | {a:name} reads {12..40} pages a day of a book of {240..900}
pages. After {3..9} days {a} reads twice as fast. When is the book finished? | Find the minimum of f(x) =
x^2 - {4..18}x + {5..60} and say where it is reached.""")

CITY = entries("""Bergen | Lyon | Valencia | Kraków | Ghent | Osaka | Leeds | Denver | Turin | Lagos |
Quito | Hanover | Graz | Perth | Porto | Basel | Austin | Malmö | Izmir | Pune""")
FIRM = entries("""Nordlicht Foods | Blue Harbor Logistics | Kestrel Robotics | Amaro Textiles | Pinewood
Bank | Helio Energy | Quartz Media | Sable Airlines | Vega Pharma | Tidewater Shipping | Larkspur Games |
Omni Toys | Redstone Mining""")
ROLE = entries(
    "accountant | designer | engineer | nurse | translator | driver | analyst | cook | teacher | welder"
)
MONTH = entries("""January | February | March | April | May | June | July | August | September | October |
November | December""")
GOODS = entries(
    "blender | headphones | tent | office chair | toaster | smart watch | rucksack | kettle | monitor | novel"
)
VERDICT = entries("""It stopped working after {2..9} weeks, and nobody answered my emails. | I use it
every day and would buy it again at once. | It is fine for the price, but the manual is useless. |
Delivery took {5..30} days and the box was damaged. | My {2..9}-year-old loves it, which says everything.
| The colour is not what the photo shows, otherwise it is solid. | Best purchase of the year; the battery
lasts {8..40} hours. | Too loud, too heavy, too expensive. | The support team in {city} replaced it within
{2..6} days. | I wanted to like it, but the zip broke on the first day.""")
RECORD = entries("""{name}, {23..64}, {role}, {city}, started in {month} {2001..2024} | {name} from {city}
({23..64}) works as a {role} for {firm} | {firm} of {city} hired {name} as a {role} in {month}
{2001..2024}""")
NEWS = entries("""{firm} opened a plant in {city} in {month} {2005..2025}; it employs {120..900} people
and cost {11..90} million euros. | On {1..28} {month} {2005..2025}, {name} of {firm} met {name} of {firm}
in {city} to sign a contract for {200..990} units. | {firm} reported revenue of {10..98} million dollars
for {2015..2025}, up {2..40} percent, while {firm} lost {2..9} million. | A fire in a warehouse of {firm}
in {city} on {day} destroyed {200..990} parcels; nobody was hurt. | {name}, until now {role} at {firm},
becomes head of the office in {city} on 1 {month}. | The {sport} club of {city} won {2..6}:{0..1} against
{city} on {day}; {name} scored twice before {3..48},000 spectators.""")
FORMAT = entries("""a JSON object | a JSON array of objects | CSV with a header line | a Markdown table |
a bulleted list | YAML | one line per entry, separated by semicolons | an XML fragment""")
FIELD = entries("the names | the places | the dates | the numbers | the organisations | the professions")

EXTRACTION = entries("""Extract name, age, profession and city from these records and return {format}:¶1.
{record}¶2. {record}¶3. {record} | Extract {field} and {field} from the following text as
{format}.¶¶{news} {news} | Rate each review from 1 (bad) to {n:5..10} (good) and return {format}.¶a)
{goods}: "{verdict}"¶b) {goods}: "{verdict}"¶c) {goods}: "{verdict}" | Classify the sentiment of each
review as positive, negative or mixed:¶- {verdict} (about the {goods})¶- {verdict} (about the {goods})¶-
{verdict} (about the {goods})¶- {verdict} (about the {goods}) | Turn this table into
{format}:¶¶product,price,stock¶{goods},{10..99}.{10..99},{0..40}¶{goods},{100..250}.00,{0..40}¶{goods},{5..60}.50,{0..40}
| Which of these articles costs most per unit? Answer with {format} sorted by price.¶¶{goods}: {100..300}
dollars for {2..4}¶{goods}: {20..90} dollars each¶{goods}: {200..900} dollars for {5..9} | List {field}
mentioned here, each once, in alphabetical order: {news} {news} {news} | Answer the questions with words
from the text only.¶¶{news} {news}¶¶1. Who or which company is the text about?¶2. Where does it take
place?¶3. Which numbers are given? | From the message below extract sender, date, place and request as
{format}.¶¶"Hello {name}, this is {name} from {firm}. Could we meet in {city} on {1..28} {month} at
{8..11}:30 to talk about {20..400} {goods} orders? Please call {20..99}-{100..999}-{1000..9999}." | Find
all dates and times in this text and write them in ISO 8601:¶{name} arrives on {1..28} {month}
{2020..2026} at {1..11} p.m.; the talk of {name} begins two days later at {8..11}:15, and the train to
{city} leaves on {1..28} {month} at noon. | Count how often each city occurs and return {format}:
{x:city}, {y:city}, {x}, {z:city}, {y}, {x}, {city}, {z}, {x}. | Given these sales, name the best and the
worst month and the total as {format}:¶{month}: {100..999}¶{month}: {100..999}¶{month}:
{100..999}¶{month}: {100..999} | Correct the spelling and extract the shopping list as {format}: "{name}
needs {2..9} botles of mlik, {2..12} {fruit}, {1..5} loafs of bred and a new {goods}." | Identify the
people, the organisations and the places in: {news} | Write a headline of at most {6..10} words for each
item:¶1. {news}¶2. {news}¶3. {news} | Extract the contract terms (parties, date, quantity, price) as
{format}: On {1..28} {month} {2018..2026} {firm} agreed to deliver {20..900} {goods} items to {firm} for
{1000..9000} dollars, payable within {14..60} days.""")

TABLES = {name.lower(): table for name, table in list(globals().items()) if isinstance(table, tuple)}
