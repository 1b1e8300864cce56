"""A short text for models that are probed without data; written for this package."""

TEXT = """\
The baker opened the shop at five, long before the first tram went by.
When it rains for three days, the river rises and the lower path disappears.
She counted the coins twice, and both times one was missing.
A good map leaves out almost everything and still shows the way.
In winter the lake freezes from the shore to the middle, never the other way round.
The committee will meet again on Tuesday, unless the report arrives earlier.
He had forgotten the name of the village, but not the smell of its bakery.
To fold a paper boat you need a square sheet and a little patience.
Most of the letters were written in blue ink; only the last one was typed.
Our neighbour keeps bees on the roof and gives away the honey in September.
If the key does not turn, lift the door slightly and try again.
The experiment failed twice because the water had not been pure enough.
Three ships left the harbour in the evening, and two of them came back.
Nobody could say who had planted the apple tree behind the school.
The price of copper fell in March and recovered before the summer.
My grandmother knew every bird in the garden by its voice.
The train to the coast leaves from platform four at half past nine.
A clock that has stopped is right twice a day, which helps no one.
They painted the kitchen yellow because the window faces north.
The second half of the film is quieter than the first, and better.
Mix the flour with salt and water, knead it well, and let it rest for an hour.
Every spring the storks return to the chimney of the old brewery.
The engineer looked at the drawing, then at the bridge, and shook her head.
It takes longer to describe the knot than to tie it.
The museum is closed on Mondays, but the garden around it is always open.
On the last page of the notebook there was a list of forgotten words.
The dog waited at the gate until the children came home from school.
Two lines that are parallel on paper may meet in the eye of a painter.
He promised to write, and he did, once, eleven years later.
The wind turned to the west, and by noon the fog was gone.
A committee of three can decide what a committee of thirty can only discuss.
The doctor asked the same question in two ways and got two answers.
From the tower one sees the whole city, and on clear days the mountains.
The cat slept on the warm stone until the shadow of the wall reached it.
Nothing in the letter was untrue, and still it was a lie.
When the music stopped, everybody heard how loud they had been talking.
"""
