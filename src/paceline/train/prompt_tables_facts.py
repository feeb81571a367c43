"""Works, people, places and events for short factual questions."""

from __future__ import annotations

from paceline.train.prompt_grammar import entries

BOOK = entries("""Moby-Dick | Frankenstein | The Great Gatsby | Dracula | Wuthering Heights | The Jungle
Book | Treasure Island | Middlemarch | Brave New World | The Metamorphosis | War and Peace | Les
Misérables | Don Quixote | Beloved | The Trial | Ulysses | Peter Pan | Heidi | Candide | The Stranger |
Dune | Emma | The Hobbit | Walden | Siddhartha | Faust | Pinocchio | Persuasion | Animal Farm | Lolita |
Little Women | Matilda | Neuromancer | Foundation | Kim""")
FILM = entries("""Casablanca | Jaws | Alien | The Godfather | Metropolis | Psycho | Titanic | Amélie |
Fargo | Gladiator | Rocky | Vertigo | Rain Man | Top Gun | Inception | Frozen | Shrek | Finding Nemo | The
Matrix | Goodfellas | Chinatown | Forrest Gump | The Sound of Music | Dirty Dancing | Grease | The Lion
King | Mary Poppins | Ghostbusters | Back to the Future | Home Alone | Toy Story | The Truman Show |
Parasite | Spirited Away | Braveheart | Apollo 13 | Cast Away""")
SERIES = entries("""Friends | Breaking Bad | The Office | Seinfeld | Cheers | The Simpsons | Doctor Who |
Star Trek | The Crown | Downton Abbey | Lost | Frasier | Mad Men | The Wire | Sherlock | Stranger Things |
The X-Files | House | MASH | Dallas | Twin Peaks | The Sopranos | Black Mirror | Columbo | Fawlty Towers""")
SONG = entries("""Bohemian Rhapsody | Imagine | Hallelujah | Yesterday | Billie Jean | Hotel California |
Waterloo | Africa | Smells Like Teen Spirit | Hey Jude | Dancing Queen | Like a Rolling Stone | Purple
Rain | Sweet Caroline | Jolene | Take On Me | Wonderwall | Bridge over Troubled Water | Respect | What a
Wonderful World | Rolling in the Deep | Thriller""")
PAINTING = entries("""The Night Watch | Guernica | The Starry Night | The Birth of Venus | The Scream |
Las Meninas | The Kiss | Girl with a Pearl Earring | The Persistence of Memory | American Gothic | The
Last Supper | Nighthawks""")
COUNTRY = entries("""Mongolia | Chile | Iceland | Ghana | Nepal | Portugal | Kazakhstan | Uruguay |
Finland | Morocco | Peru | Laos | Estonia | Jordan | Kenya | Cuba | New Zealand | Bolivia | Hungary |
Senegal | Thailand | Norway | Ecuador | Ethiopia | Cambodia | Croatia | Paraguay | Ireland | Tunisia |
Bangladesh | Slovenia | Namibia | Panama | Malta""")
SITE = entries("""the Eiffel Tower | the Colosseum | Machu Picchu | the Taj Mahal | the Brooklyn Bridge |
Stonehenge | the Sydney Opera House | the Hagia Sophia | the Empire State Building | Angkor Wat | the
Alhambra | Neuschwanstein Castle | the Golden Gate Bridge | the Parthenon | Mount Rushmore | Big Ben | the
Burj Khalifa | the Leaning Tower of Pisa | the Hoover Dam | the Channel Tunnel | the Kremlin | Notre-Dame
de Paris | the Atomium | the Space Needle""")
NATURE = entries("""the Danube | Lake Baikal | Mount Kilimanjaro | the Mississippi | the Sahara | the
Great Barrier Reef | Niagara Falls | Mount Etna | the Dead Sea | the Amazon | Mont Blanc | the Mariana
Trench | Lake Victoria | the Gobi Desert | the Volga | Table Mountain | the Andes | Victoria Falls | the
Yangtze | the Baltic Sea | Denali | the Nile""")
EVENT = entries("""the first Moon landing | the Battle of Hastings | the sinking of the Lusitania | the
Boston Tea Party | the fall of Constantinople | the first modern Olympic Games | the Great Fire of London
| the Battle of Waterloo | the Chernobyl disaster | the Congress of Vienna | the Louisiana Purchase | the
Wall Street Crash | the Woodstock festival | the Battle of Gettysburg | the San Francisco earthquake | the
Berlin Airlift | the Wright brothers' first flight | the eruption of Krakatoa | the Spanish Armada | the
Gold Rush in California | the Apollo 13 mission | the Peace of Westphalia | the Tunguska event | the
Hindenburg disaster | the Velvet Revolution""")
INVENTION = entries("""the telephone | the light bulb | the zip fastener | dynamite | the sewing machine |
the bicycle | the World Wide Web | the ballpoint pen | the stethoscope | the diesel engine | penicillin |
the microwave oven | the parachute | the typewriter | the lightning rod | the steam locomotive | barbed
wire | the safety pin | the transistor | the barometer | the helicopter | the saxophone | the Rubik's Cube
| the elevator brake | the battery | the jet engine | vulcanised rubber""")
FIGURE = entries("""Marie Curie | Nelson Mandela | Vincent van Gogh | Rosa Parks | Albert Einstein |
Genghis Khan | Mahatma Gandhi | Napoleon | Frédéric Chopin | Charles Dickens | Catherine the Great |
Johannes Kepler | Alan Turing | Louis Pasteur | Hannibal | Simón Bolívar | Johann Sebastian Bach | Ernest
Hemingway | Ella Fitzgerald | Neil Armstrong | Abraham Lincoln | Queen Victoria | Christopher Columbus |
Ferdinand Magellan | Edgar Allan Poe | Emily Dickinson | Claude Monet | Max Planck | Rosalind Franklin |
Katharine Hepburn | Muhammad Ali | Pelé | Jesse Owens | Babe Ruth | Beatrix Potter""")
ORGANISATION = entries("""the Red Cross | NATO | the BBC | IKEA | Nintendo | the World Bank | UNESCO |
Volkswagen | Lego | Greenpeace | Toyota | FIFA | the Nobel Foundation | Adidas | the European Space Agency
| Boeing | IBM | Rolls-Royce | the New York Times | the Vatican Library | Harvard University | Interpol |
Wikipedia | the Royal Society | OPEC""")
ELEMENT = entries(
    "gold | iron | helium | sodium | mercury | tungsten | silver | potassium | tin | uranium | neon"
)
ORGAN = entries("the liver | the pancreas | the spleen | the cerebellum | the femur | the cornea | the aorta")
BEAST = entries(
    "a blue whale | a giraffe | a honey bee | a cheetah | a tortoise | an ostrich | a lobster | a koala"
)
GAME = entries("""football | basketball | ice hockey | chess | cricket | volleyball | baseball | rugby |
badminton | handball | water polo | table tennis | golf | tennis | curling""")
CURRENT = entries("""the {game} world championship | the Nobel Prize in Literature in {1950..2015} | the
Nobel Peace Prize in {1950..2015} | the Eurovision Song Contest in {1965..2015} | the Oscar for best actor
in {1950..2015} | the Oscar for best picture in {1950..2015} | Wimbledon in {1970..2015} | the Tour de
France in {1960..2015} | the Super Bowl in {1970..2015} | the football World Cup in Mexico | the
presidential election of {year}""")
YEAR = entries("1948 | 1952 | 1960 | 1968 | 1976 | 1980 | 1988 | 1992 | 2000 | 2008")

FACTS = entries("""Who wrote {book}? | When was {book} published? | Who is the main character of {book}? |
Where does {book} take place? | Who directed {film}? | When did {film} come out? | Who plays the lead in
{film}? | Where was {film} filmed? | How many seasons of {series} are there? | Who created {series}? |
Where is {series} set? | When did the first episode of {series} air? | Who sings {song}? | Who wrote the
song {song}? | When was {song} released? | Who painted {painting}? | Where can you see {painting} today? |
What is the capital of {country}? | What languages are spoken in {country}? | What currency is used in
{country}? | How many people live in {country}? | Which countries border {country}? | When did {country}
become independent? | What does the flag of {country} look like? | Where is {site} located? | When was
{site} built? | Who designed {site}? | How tall is {site}? | Where is {nature}? | How long or how large is
{nature}? | How was {nature} formed? | When did {event} happen? | Where did {event} take place? | What
caused {event}? | Who was involved in {event}? | Who invented {invention}? | When was {invention}
invented? | What was used before {invention}? | Where was {figure} born? | When did {figure} die? | What
is {figure} famous for? | Where is {figure} buried? | Who founded {organisation}? | Where are the
headquarters of {organisation}? | When was {organisation} founded? | What does {organisation} do? | What
is the chemical symbol of {element}? | What is the melting point of {element}? | What is {element} used
for? | What does {organ} do? | Where in the body is {organ}? | How long does {beast} live? | What does
{beast} eat? | How fast is {beast}? | How many players are in a {game} team? | Where was {game} invented?
| How long does a {game} match last? | Who won {current}? | Who lost the presidential election of {year}
in the united states? | Which is longer, {nature} or {nature}? | Which is older, {site} or {site}? | Who
is older, {figure} or {figure}?""")

TABLES = {name.lower(): table for name, table in list(globals().items()) if isinstance(table, tuple)}
