"""Words for prompts that ask for a text or for a role to be played."""

from __future__ import annotations

from paceline.train.prompt_grammar import entries

PLACE = entries("""Lisbon | Kyoto | the Scottish Highlands | Marrakesh | Reykjavik | New Orleans |
Patagonia | Vienna | the Amalfi Coast | Hanoi | Cape Town | the Rocky Mountains | Istanbul | Cusco |
Tasmania | Prague | Zanzibar | Québec City | the Norwegian fjords | Jaipur | Seville | Taipei |
Yellowstone | Budapest | Crete | Oaxaca | Tallinn | the Black Forest | Havana | Petra | Bruges | Chiang
Mai | Santorini | Dublin | the Faroe Islands | Buenos Aires | Singapore | the Lake District | Porto |
Bhutan | San Francisco | Salzburg | the Grand Canyon | Nairobi | Bali""")

SUBJECT = entries("""learning to cook for one person | the return of vinyl records | keeping bees in a
city | life without a car | working from home with small children | the joy of second-hand books | how to
fall asleep faster | growing tomatoes on a balcony | saving money as a student | the first week at a new
job | running a first half marathon | why people collect stamps | adopting an older dog | planning a small
wedding | a day without a phone | morning routines | public libraries | repairing clothes at home | the
history of tea | night trains | board games for families | learning the piano as an adult | moving to a
new country | houseplants for dark rooms | local elections | travelling with a baby | how to give good
feedback | electric bicycles | baking sourdough bread | winter swimming | volunteering at a food bank |
open-source software | how to read a scientific paper | minimalism | street photography | the four-day
week | school uniforms | online privacy | screen time for teenagers | camping in the rain | birdwatching
for beginners | keeping a diary | learning two languages at once | artificial intelligence in schools |
remote islands | healthy lunches for the office | the best way to apologise | urban gardens | water
shortages | solar panels on old houses | how to prepare for an interview | the pleasure of walking | small
museums | the future of newspapers | noise in cities | coffee culture | sports and friendship | making
mistakes | choosing a university | being a good neighbour | chess | fast fashion | food waste | meditation
| friendship in old age | space tourism | video games as art | the value of boredom | zoos | tipping in
restaurants | handwriting | self-driving cars""")

PRODUCT = entries("""a folding electric kettle | wireless earbuds for swimmers | a desk lamp that wakes
you with light | a backpack made of old sails | a smart plant pot | handmade oat soap | a quiet mechanical
keyboard | a solar phone charger | noise-cancelling curtains | a children's telescope | a reusable
notebook | a cast-iron pan | a bicycle helmet with lights | a subscription box of teas | an ergonomic
chair | a pocket translator | a cordless drill | a weighted blanket | a portable espresso maker | a wooden
train set | running shoes for wide feet | a robot lawn mower | a thermos for soup | an app that teaches
sign language | a password manager | a meal planning app | a camping hammock | a smart doorbell | a
language learning game | an electric cargo bike | a water filter bottle | a sewing kit for travellers | a
standing desk | a bird feeder with a camera | a board game about trading spices""")

PERSON = entries("""your manager | a customer whose parcel was lost | a landlord who has not repaired the
heating | a former teacher | the local council | a colleague who is leaving | a new neighbour | a supplier
who is late | a hotel where you left your glasses | your team after a hard week | a friend you have not
seen for years | a job applicant who was not chosen | the parents of a school class | an airline after a
cancelled flight | a professor whose course you want to join | the members of a sports club | an author
whose book you liked | a client who has not paid | a mentor | the editor of a newspaper | a bank | a
cousin who has just had a baby | a scholarship committee""")

PURPOSE = entries("""asking for two days of leave | thanking them for their help | explaining a delay of
{2..9} days | inviting them to a meeting on {weekday} | asking for a refund of {20..400} dollars |
proposing a new schedule | reporting a broken {thing} | sharing good news | asking for honest feedback |
declining an offer politely | announcing a change of address | asking for more information about prices |
reminding them of a deadline | apologising for a misunderstanding | suggesting a walk next {weekday} |
requesting a letter of recommendation | complaining about noise | asking for advice on a career change |
confirming an appointment at {1..11} o'clock""")

WEEKDAY = entries("Monday | Tuesday | Wednesday | Thursday | Friday | Saturday | Sunday")

THING = entries("""lamp | umbrella | piano | suitcase | clock | bicycle | camera | teapot | violin | kite
| lighthouse | mirror | key | map | lantern | letter | compass | bridge | ladder | telescope | raincoat |
typewriter | window""")

HERO = entries("""a retired postman | a girl who can hear plants | a nervous young dragon | a night-shift
nurse | a lighthouse keeper | twin sisters | a robot that is afraid of the dark | a baker in a mountain
village | a lost astronaut | a boy with a paper boat | a detective who cannot lie | an old sailor | a
clumsy wizard | a librarian | a fox and a crow | a violin maker | a taxi driver in {place} | a young queen
| a clock repairer | a talking cat | a student of magic | a ghost who likes to cook | a shy giant | a
mapmaker | a chess champion | a beekeeper""")

EVENT = entries("""finds a door that was not there yesterday | receives a letter from the future | loses
the only key to the town | has to win back a friend | discovers a hidden garden | must cross a frozen lake
before dawn | hears a song nobody else can hear | is mistaken for someone famous | has one day to save a
{thing} | learns an old secret | wakes up in {place} without any memory | makes a promise that is hard to
keep | meets a stranger on a train | finds a {thing} that grants one wish | is the last one who remembers
a language | solves the theft of a golden {thing} | builds a machine out of scrap | misses the last ferry
home | must choose between truth and kindness""")

GENRE = entries("""mystery | fairy tale | science fiction | comedy | adventure | ghost story | fable |
romance | historical fiction | western | fantasy | thriller | coming-of-age""")

FORM = entries(
    """poem | haiku | sonnet | limerick | song | ballad | short free-verse poem | rhyming couplet |
    lullaby"""
)

MOOD = entries("""autumn | the sea at night | a train station | lost keys | the first snow | an old
{thing} | a grandmother's kitchen | silence | a thunderstorm | the moon | growing up | a city waking up |
rain on a tin roof | hope | a broken {thing} | summer holidays | mountains | saying goodbye | coffee | a
sleeping cat | stars | bread | a river in spring | friendship | time | a market in {place} | homesickness
| courage | an empty house | bees""")

TONE = entries("""friendly | formal | humorous | persuasive | warm | matter-of-fact | enthusiastic | calm
| poetic | concise | conversational | professional | dramatic | thoughtful""")

READER = entries("""teenagers | busy parents | beginners | retired people | small business owners |
tourists | children of eight | engineers | first-year students | people on a tight budget | sceptics |
office workers | teachers""")

WRITING = entries("""Write a {tone} blog post about {subject}. | Write a blog post for {reader} about
{subject}. | Draft an email to {person}, {purpose}. | Write a {tone} email to {person}, {purpose}. Keep it
under {80..180} words. | Write a short story in which {hero} {event}. | Write a {genre} story of about
{150..400} words: {hero} {event}. | Write the opening paragraph of a {genre} novel in which {hero}
{event}. | Write a {form} about {mood}. | Compose a {form} for {reader} about {mood}. | Write a {tone}
product description for {product}. | Write three slogans and a short advertisement for {product}. | Write
an essay that argues for or against {subject}. | Give me an outline for an article about {subject}, with a
title and {3..7} sections. | Write a {tone} review of {product} after {2..11} months of use. | Write a
travel guide to {place} for {reader}. | Describe a walk through {place} in the {tone} voice of a local. |
Plan a {2..6}-day trip to {place} for {reader}. | Write a dialogue between {hero} and {hero} about {mood}.
| Write a speech of two minutes about {subject}. | Write a letter from {hero} to {hero}. | Suggest {4..9}
titles for a book in which {hero} {event}. | Write a press release announcing {product}. | Write a social
media post about {subject} for {reader}. | Describe {mood} using all five senses. | Write the first scene
of a play: {hero} {event}. | Write a diary entry of {hero} on the day after the storm. | Rewrite this
sentence in a {tone} style: "The meeting about {subject} was moved to {weekday}." | Write a newsletter for
{reader} about {subject}. | Write a recipe with an introduction for a dish that reminds you of {place}. |
Write a job advert for {hero}. | Write a toast for a wedding in {place}. | Write a paragraph that compares
{subject} with {subject}. | Write an announcement: the library offers a course on {subject} every
{weekday}. | Write a cover letter of a person who wants to work in {place} as a {job}. | List {5..10}
arguments a columnist could use in a piece on {subject}. | Write an FAQ with {4..7} questions for
{product}. | Continue this story: "On {weekday} morning, {hero} opened the door and saw an old {thing}." |
Write a monologue of a {thing}. | Write a thank-you note to {person}. | Write an obituary for an imaginary
{job} from {place}. | Summarise the plot of an imaginary film in which {hero} {event}. | Write a script
for a one-minute radio spot about {product}.""")

JOB = entries("""gardener | pastry chef | tax adviser | sea captain | kindergarten teacher | physicist |
travel agent | football coach | judge | paramedic | film critic | librarian | carpenter | yoga teacher |
chess trainer | museum guide | veterinarian | pilot | sommelier | journalist | nurse | fitness trainer |
career coach | mechanic | architect | wedding planner | detective | farmer | tailor | astronomer |
diplomat | weather presenter | locksmith | history teacher | stand-up comedian | nutritionist | beekeeper
| software tester | interior designer | mountain guide""")

FAMOUS = entries("""Marie Curie | Sherlock Holmes | Leonardo da Vinci | Cleopatra | Charles Darwin | Jane
Austen | Isaac Newton | Ada Lovelace | William Shakespeare | Robin Hood | Socrates | Amelia Earhart |
Wolfgang Amadeus Mozart | Don Quixote | Captain Nemo | Nikola Tesla | Frida Kahlo | Galileo Galilei |
Florence Nightingale | Julius Caesar | Marco Polo | Alexander von Humboldt | a Viking explorer | a
medieval monk | Ludwig van Beethoven | Charlie Chaplin | Merlin | an alien visitor | a Roman soldier |
Johannes Gutenberg | Dracula | Joan of Arc | Benjamin Franklin | Confucius | a wise old tortoise | a
pirate captain | a robot from the year 2300 | a knight of the round table""")

PROBLEM = entries("""I cannot decide between two job offers | my tomatoes are turning yellow | I sleep
badly before exams | my dog barks whenever the bell rings | I want to learn to cook in {2..9} weeks | my
neighbour is loud every {weekday} | I forget names all the time | I have {50..900} dollars and want to
start a small business | I am afraid of speaking in public | I quarrelled with my best friend | my bicycle
makes a strange noise | I have to plan a party for {8..60} guests | my son does not like reading | I am
moving to {place} next month | my back hurts after a day at the desk | I want to run {5..21} kilometres by
spring | my laptop is getting slow | I am bored at weekends | I have never written a speech | I have too
many old books | my houseplants keep dying | I feel tired every afternoon""")

QUESTION = entries("""What do you think of smartphones? | What was the hardest day of your life? | What
would you tell a child who wants to be like you? | What did you have for breakfast? | How would you spend
a week in {place}? | Who is your greatest rival? | What makes you laugh? | What do you think about
{subject}? | Which {thing} would you never give away? | What is your opinion on money? | How do you begin
your day? | What do people get wrong about you? | Tell me about your work. | What is the secret of your
success? | How do you deal with failure?""")

ROLEPLAY = entries("""You are {famous}. {question} | Answer as if you were {famous}: {question} | Take the
role of a {job}. {^problem}. What should I do? | Act as a {tone} {job}. My problem: {problem}. Ask me
questions before you advise me. | Play {famous} in an interview. The first question is: {question} | Let
us play a game: you are a {job} in {place} and I am a visitor. Greet me and ask what I need. | You are a
{job} who explains everything with comparisons to {mood}. {^problem}, please help. | Speak like {famous}
and explain {subject}. | Be my {job}. I will tell you about my day and you give me advice. Today
{problem}. | Imagine you are a {thing} in the house of {famous}. Tell us what you have seen. | You are the
narrator of a text adventure. I am {hero}. Describe the first room and offer {2..5} choices. | Pretend
that you are a {job} talking to a {job} about {subject}. Write both sides. | You are a {job} with {10..40}
years of experience. {question} | As {famous}, write a letter of advice to a young {job}. | I want you to
act as a {job} for {reader}. Begin with {3..6} questions you would ask me. | You are a customer in a shop
that sells {product}. Ask the clerk difficult questions. | How would {famous} react to {product}? Answer
in the first person. | You are a {job}. Talk to {reader} about {subject}, and why it matters. | Play a
strict {job} who reviews my plan: I want to visit {place} with only a {thing}.""")

EXTRA = entries("""Mention {place}. | Write for {reader}. | Include {2..5} concrete details. | End with a
question. | Begin with a surprising fact. | Use short sentences. | Avoid clichés. | Keep it between
{90..140} and {160..240} words. | Write in the first person. | Write in the present tense. | Use at least
{2..4} metaphors. | Add a title. | Let a {thing} play a part in it. | The mood should be {tone}. | Make it
suitable for {reader}. | Structure it with headings. | Include a short dialogue. | Finish with a call to
action. | Refer to {mood} at least once. | Do not use the word "very". | Add a note that explains your
choices. | Give {2..3} different versions. | Write it in {3..5} paragraphs.
| Stay in character until the end. | Take into account that it is {weekday}. | Think of {mood}, and of
someone who {event}.""")

TABLES = {name.lower(): table for name, table in list(globals().items()) if isinstance(table, tuple)} | {
    # Half of these prompts carry a wish of their own.
    "writing": tuple(f"{template}{{extra}}" for template in WRITING),
    "roleplay": tuple(f"{template}{{extra}}" for template in ROLEPLAY),
    "extra": ("",) * (len(EXTRA) // 2) + tuple(f" {wish}" for wish in EXTRA),
}
